// How events of memory change the figures: the code that runs for every allocation.
#include <algorithm>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::trace {
namespace {

/// Of the blocks of a device's pool.
AddressSpace space_of_blocks(const DeviceTotals& device) {
    return device.info.is_gpu() ? AddressSpace::pointer : suballocation_space(device.info.index);
}

}  // namespace

void Aggregator::on(const Event& event) {
    guarded([&] {
        advance_to_event(event.time_ns, 1);
        switch (event.type) {
            case EventType::alloc:
                if (fits(event)) {
                    allocate(event);
                }
                break;
            case EventType::free_requested:
                free(event);
                break;
            case EventType::free_completed:
                complete(event);
                break;
            case EventType::segment_alloc:
            case EventType::segment_map:
                if (fits(event)) {
                    segment(event);
                }
                break;
            case EventType::segment_free:
            case EventType::segment_unmap:
                segment(event);
                break;
            case EventType::alloc_retry:
                ++devices_[event.device]->pool.stats.num_alloc_retries;
                break;
            case EventType::sync:
                ++devices_[event.device]->pool.stats.num_sync_all_streams;
                break;
            case EventType::mark:
                mark(event);
                break;
            case EventType::scope_begin:
            case EventType::scope_end:
                scope(event);
                break;
            case EventType::label:
                label(event);
                break;
            case EventType::empty_cache:
            case EventType::tick:
            case EventType::reclaim:
                break;  // causes; their effects are events of their own
        }
        end_found_step(event);
    });
}

void Aggregator::on_freed(const Event& free_requested) {
    guarded([&] {
        advance_to_event(free_requested.time_ns, 2);
        free_immediately(free_requested);
        end_found_step(free_requested);
    });
}

template <typename SiteOrEvent>
std::uint64_t Aggregator::site_hash(const SiteOrEvent& of) {
    return HashIndex::spread(
        (std::uint64_t{of.stack} << 32 | of.api) ^
        HashIndex::spread(std::uint64_t{of.device} << 8 | static_cast<std::uint64_t>(of.kind)));
}
template std::uint64_t Aggregator::site_hash(const Site& of);

std::uint32_t Aggregator::site_index(const Event& event) {
    const std::uint64_t hash = site_hash(event);
    const std::uint32_t known = site_index_.find(hash, [&](std::uint32_t index) {
        const Site& site = sites_[index];
        return site.stack == event.stack && site.api == event.api && site.device == event.device &&
               site.kind == event.kind;
    });
    if (known != HashIndex::none) {
        return known;
    }
    const auto index = static_cast<std::uint32_t>(sites_.size());
    Site site;
    site.stack = event.stack;
    site.api = event.api;
    site.device = event.device;
    site.kind = event.kind;
    site_index_.reserve_slot();
    sites_.push_back(std::move(site));
    site_index_.insert(hash, index);
    return index;
}

/// Creates the entry if needed. To bound the table, entries without a live allocation are dropped
/// when it has grown.
Aggregator::Latest& Aggregator::latest_allocation(std::uint32_t thread) {
    if (latest_used_ < latest_.size() && latest_[latest_used_].thread == thread) {
        return latest_[latest_used_];
    }
    const auto find = [&] {
        return latest_index_.find(HashIndex::mix(thread), [&](std::uint32_t index) {
            return latest_[index].thread == thread;
        });
    };
    latest_used_ = find();
    if (latest_used_ != HashIndex::none) {
        return latest_[latest_used_];
    }
    constexpr std::size_t min_capacity = 1024;
    if (latest_.size() >= min_capacity + 2 * live_.size()) {
        std::erase_if(latest_, [](const Latest& latest) { return latest.serial == 0; });
        latest_index_.clear();
        for (std::uint32_t index = 0; index < latest_.size(); ++index) {
            latest_index_.insert(HashIndex::mix(latest_[index].thread), index);
        }
    }
    latest_index_.reserve_slot();
    latest_used_ = static_cast<std::uint32_t>(latest_.size());
    latest_.push_back({.thread = thread, .serial = 0});
    latest_index_.insert(HashIndex::mix(thread), latest_used_);
    return latest_.back();
}

/// Updates peaks and the timeline after the device's figures changed.
template <Timeline::Change change>
void Aggregator::commit(DeviceTotals& device) {
    Timeline::Values values;
    if constexpr (change == Timeline::Change::fall) {  // no peak
        for (std::size_t i = 0; i < curve_count; ++i) {
            values[i] = device.curves[i].current;
        }
    } else {
        bool peaks = false;
#pragma GCC unroll 8
        for (std::size_t i = 0; i < curve_count; ++i) {
            Curve& curve = device.curves[i];
            if (curve.current > curve.peak) {
                curve.peak = curve.current;
                curve.peak_time_ns = now_;
                if (i == static_cast<std::size_t>(CurveName::allocated)) {
                    ++device.peak_number;
                    device.peak_serial = next_serial_;
                    device.peak_moment.holds = true;
                    device.peak_moment.kernels.clear();
                    device.at_peak_known = true;
                    peaks = true;
                }
            }
            values[i] = curve.current;
        }
        if (peaks) {
            device.at_peak = values;
        }
        device.allocated_since_mark =
            std::max(device.allocated_since_mark, device.curve(CurveName::allocated).current);
        device.reserved_since_mark =
            std::max(device.reserved_since_mark, device.curve(CurveName::reserved).current);
    }
    const Curve& allocated = device.curve(CurveName::allocated);
    if (device.peak_moment.holds && allocated.current < allocated.peak) {
        device.peak_moment.holds = false;
        device.peak_moment.fell_ns = now_;
    }
    if (!device.sampled) {
        values[static_cast<std::size_t>(CurveName::device_used)] = Timeline::unknown;
    }
    device.timeline.record<change>(now_, values);
}

/// Must be called before the site's live bytes change, by an allocation that is a segment or not.
void Aggregator::before_live_change(std::uint32_t index, bool is_segment) {
    Site& site = sites_[index];
    if (steps_.following() && counts_as_device_memory(site.kind) && !is_segment) {
        steps_.before_change(index, site.live_bytes);
    }
    keep_peak(site, devices_[site.device]->peak_number);
}

void Aggregator::allocate(const Event& event) {
    DeviceTotals& device = *devices_[event.device];
    const AddressSpace space = address_space(event);
    overwrite(live_.find(event.address, space));
    // Others are in no segment of the device's: handles, and suballocations on a GPU.
    const bool pooled = event.origin == Origin::pool && space == space_of_blocks(device);
    const bool is_segment = event.name != 0 && event.origin == Origin::driver;
    const std::uint32_t in_site = site_index(event);
    const std::uint64_t size = event.size == 0 && !pooled ? event.requested : event.size;
    bool small_pool = false;
    if (pooled) {
        PoolLayout::AddedBlock block = device.pool.add_block(event.address, size);
        if (block.overlaps) {
            end_blocks_in(device, event.address, size);
            block = device.pool.add_block(event.address, size);
        }
        small_pool = block.small;
        MemoryStats& stats = device.pool.stats;
        stats.allocation.increase(small_pool, 1);
        stats.allocated_bytes.increase(small_pool, size);
        stats.requested_bytes.increase(small_pool, event.requested);
        if (device.pool.oversize(size)) {
            stats.oversize_allocations.increase(1);
        }
        Fragmentation& fragmentation = device.fragmentation;
        fragmentation.peak_active = stats.active_bytes.all.peak;
        if (stats.allocated_bytes.all.current > fragmentation.allocated_at_peak) {
            fragmentation.allocated_at_peak = stats.allocated_bytes.all.current;
            fragmentation.requested_at_peak = stats.requested_bytes.all.current;
        }
    }
    std::uint32_t owner = 0;
    if (scopes_.any_open() && counts_as_device_memory(event.kind) && !is_segment) {
        owner = scopes_.allocated(event.thread, in_site, size);
    }
    const std::uint32_t slot = live_.add(event.address, space);
    Live& live = live_[slot];
    live.site = in_site;
    live.context = event.context;
    live.thread = event.thread;
    live.scopes = owner;
    live.origin = pooled ? Origin::pool : Origin::driver;
    live.small_pool = small_pool;
    live.is_segment = is_segment;
    live.serial = ++next_serial_;
    live.time_ns = now_;
    live.requested = event.requested;
    live.size = size;
    latest_allocation(event.thread).serial = next_serial_;

    before_live_change(in_site, is_segment);
    Site& site = sites_[in_site];
    ++site.count;
    ++site.live_count;
    site.requested_bytes += event.requested;
    site.bytes += size;
    site.live_bytes += size;
    if (site.live_bytes > site.peak_bytes) {
        site.peak_bytes = site.live_bytes;
        site.peak_time_ns = now_;
    }
    KindTotals& kind = device.kinds[static_cast<std::size_t>(event.kind)];
    ++kind.count;
    ++kind.live_count;
    kind.bytes += size;
    kind.live_bytes += size;
    kind.peak_bytes = std::max(kind.peak_bytes, kind.live_bytes);

    if (counts_as_device_memory(event.kind)) {
        if (event.nn_modules != 0) {
            live.nn_modules =
                nn_modules_.allocated(event.nn_modules, in_site, size, device.peak_number);
        }
        device.segment_bytes += is_segment ? size : 0;
        device.curve(CurveName::requested).current += event.requested;
        device.curve(CurveName::allocated).current += size;
        device.curve(CurveName::active).current += size;
        if (!pooled) {
            device.curve(CurveName::reserved).current += size;
        }
        commit<Timeline::Change::rise>(device);
    } else if (KindCurve* const curve = device.kind_curve(event.kind)) {
        curve->rise(in_site, {site.live_count - 1, site.live_bytes - size}, size, now_);
    }
    if (observer_ != nullptr) {
        observer_->allocated(slot, live, event);
    }
}

void Aggregator::free(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event));
    if (at == LiveTable::none || live_[at].pending) {
        ++integrity_.unmatched_frees;
        return;
    }
    const LifeEnd end{.event = &event};
    const Live& live = live_[at];
    const Site& site = sites_[live.site];
    DeviceTotals& device = *devices_[site.device];
    const bool counts = counts_as_device_memory(site.kind);
    apply_free_requested(at, end);
    if (live.origin == Origin::driver || event.origin == Origin::driver) {
        apply_free_completed(at, end);
    }
    if (counts) {
        commit<Timeline::Change::fall>(device);
    }
}

void Aggregator::complete(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event));
    if (at == LiveTable::none) {
        return;  // its free_requested was counted as unmatched
    }
    DeviceTotals& device = *devices_[sites_[live_[at].site].device];
    end_life(at, {.event = &event});
    commit<Timeline::Change::fall>(device);
}

/// free() and complete() in one. No curve falls twice, so one commit suffices.
void Aggregator::free_immediately(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event));
    if (at == LiveTable::none || live_[at].pending) {
        ++integrity_.unmatched_frees;
    }
    if (at == LiveTable::none) {
        return;
    }
    DeviceTotals& device = *devices_[sites_[live_[at].site].device];
    end_life(at, {.event = &event});
    commit<Timeline::Change::fall>(device);
}

void Aggregator::end_life(std::uint32_t at, const LifeEnd& end) {
    if (!live_[at].pending) {
        apply_free_requested(at, end);
    }
    apply_free_completed(at, end);
}

/// The application freed it. Changes the curves; the caller commits.
void Aggregator::apply_free_requested(std::uint32_t at, const LifeEnd& end) {
    Live& live = live_[at];
    if (observer_ != nullptr) {
        observer_->freed(at, live, end);
    }
    const Event* const freeing = end.event;
    Site& site = sites_[live.site];
    site.lifetimes.add(now_ - live.time_ns);
    DeviceTotals& device = *devices_[site.device];
    live.pending = true;
    before_live_change(live.site, live.is_segment);
    if (scopes_.any_open() && counts_as_device_memory(site.kind) && !live.is_segment) {
        scopes_.freed(freeing != nullptr ? std::optional(freeing->thread) : std::nullopt,
                      live.scopes, live.site, live.size, live.serial);
    }
    if (live.has_label && !live.is_segment) {
        labels_.ended(live.address, live.size);
    }
    --site.live_count;
    site.live_bytes -= live.size;
    KindTotals& kind = device.kinds[static_cast<std::size_t>(site.kind)];
    --kind.live_count;
    kind.live_bytes -= live.size;
    site.freed_elsewhere += freeing != nullptr && freeing->thread != live.thread ? 1 : 0;
    if (freeing != nullptr && freeing->name != 0 && !live.is_segment) [[unlikely]] {
        apply_collected(live);
    }
    Latest& latest = latest_allocation(live.thread);
    if (latest.serial == live.serial) {
        latest.serial = 0;
        site.temporaries += freeing != nullptr ? 1 : 0;
    }
    if (counts_as_device_memory(site.kind)) {
        if (live.nn_modules != 0) {
            nn_modules_.freed(live.nn_modules, live.size, device.peak_number);
        }
        device.segment_bytes -= live.is_segment ? live.size : 0;
        device.curve(CurveName::requested).current -= live.requested;
        device.curve(CurveName::allocated).current -= live.size;
    } else if (KindCurve* const curve = device.kind_curve(site.kind)) {
        curve->fall(live.site, {site.live_count + 1, site.live_bytes + live.size}, live.size, now_);
    }
    if (live.origin == Origin::pool) {
        MemoryStats& stats = device.pool.stats;
        stats.allocation.decrease(live.small_pool, 1);
        stats.allocated_bytes.decrease(live.small_pool, live.size);
        stats.requested_bytes.decrease(live.small_pool, live.requested);
        if (device.pool.oversize(live.size)) {
            stats.oversize_allocations.decrease(1);
        }
    }
}

/// The memory is safe to reuse. The caller commits.
void Aggregator::apply_free_completed(std::uint32_t at, const LifeEnd& end) {
    const Live& live = live_[at];
    if (observer_ != nullptr) {
        observer_->ended(at, live, end);
    }
    const Site& site = sites_[live.site];
    DeviceTotals& device = *devices_[site.device];
    if (counts_as_device_memory(site.kind)) {
        device.curve(CurveName::active).current -= live.size;
        if (live.origin == Origin::driver && site.kind == MemoryKind::vmm) {
            device.no_longer_reserved(live.size);
        } else if (live.origin == Origin::driver) {
            device.curve(CurveName::reserved).current -= live.size;
        }
    }
    if (live.origin == Origin::pool) {
        device.pool.remove_block(live.address, live.size, live.small_pool);
    }
    live_.erase(at);
}

/// Ends the allocation at an address that is being reused.
void Aggregator::overwrite(std::uint32_t at) {
    if (at == LiveTable::none) {
        return;
    }
    ++integrity_.overwritten_allocations;
    DeviceTotals& device = *devices_[sites_[live_[at].site].device];
    end_life(at, {.cause = LifeEnd::Cause::unseen});
    commit(device);
}

/// Ends the pool's blocks in a range that is being reused or freed.
void Aggregator::end_blocks_in(DeviceTotals& device, std::uint64_t address, std::uint64_t size) {
    for (const std::uint64_t block : device.pool.blocks_in(address, size)) {
        overwrite(live_.find(block, space_of_blocks(device)));
    }
}

/// With the blocks in it. Returns the bytes that are no longer reserved.
std::uint64_t Aggregator::remove_segment(DeviceTotals& device, std::uint64_t base) {
    const std::uint64_t size = device.pool.segment_size(base);
    end_blocks_in(device, base, size);
    if (observer_ != nullptr) {
        observer_->segment_removed(device.info.index, {base, size});
    }
    return device.pool.remove_segment(base);
}

void Aggregator::segment(const Event& event) {
    DeviceTotals& device = *devices_[event.device];
    PoolLayout& pool = device.pool;
    if (event.type == EventType::segment_alloc || event.type == EventType::segment_map) {
        end_blocks_in(device, event.address, event.size);
        for (const std::uint64_t base : pool.segments_in(event.address, event.size)) {
            device.no_longer_reserved(remove_segment(device, base));
            ++integrity_.overwritten_segments;
        }
        Fragmentation& fragmentation = device.fragmentation;
        const std::uint64_t free_before = pool.gap_bytes();
        // Only where it may be a new peak: a pool may have many segments to look at.
        const std::uint64_t held = pool.stats.reserved_bytes.all.current;
        const bool may_peak = event.size > fragmentation.peak_reserved ||
                              held > fragmentation.peak_reserved - event.size;
        const std::uint64_t largest_before = may_peak ? pool.largest_gap() : 0;
        if (observer_ != nullptr && event.size != 0) {
            observer_->segment_added(event);
        }
        const std::uint64_t added = pool.add_segment(event.address, event.size, event.context,
                                                     event.type == EventType::segment_map);
        if (pool.stats.reserved_bytes.all.peak > fragmentation.peak_reserved) {
            fragmentation.peak_reserved = pool.stats.reserved_bytes.all.peak;
            fragmentation.total_free = free_before;
            fragmentation.largest_free = largest_before;
        }
        Site& site = sites_[site_index(event)];
        ++site.segment_count;
        site.segment_bytes += added;
        device.curve(CurveName::reserved).current += added;
        if (event.kind == MemoryKind::suballocation) {
            take_as_segment(event);
        }
    } else if (event.type == EventType::segment_free) {
        const std::uint64_t size = pool.segment_size(event.address);
        if (size == 0) {
            ++integrity_.unmatched_segment_frees;
            return;
        }
        device.no_longer_reserved(remove_segment(device, event.address));
    } else {
        end_blocks_in(device, event.address, event.size);
        if (observer_ != nullptr) {
            for (const PoolLayout::Range& range : pool.mapped_in(event.address, event.size)) {
                if (range.size != 0) {
                    observer_->segment_removed(event.device, range);
                }
            }
        }
        const std::uint64_t unmapped = pool.unmap(event.address, event.size);
        integrity_.unmatched_segment_frees += unmapped == 0 ? 1 : 0;
        device.no_longer_reserved(unmapped);
    }
    commit(device);
}

template void Aggregator::commit<Timeline::Change::any>(DeviceTotals& device);

}  // namespace memlab::trace
