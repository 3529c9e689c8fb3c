#include "trace/aggregate/aggregator.hpp"

#include <algorithm>
#include <charconv>
#include <new>

namespace memlab::trace {
namespace {

std::array<std::uint64_t, 4> current_curves(const DeviceTotals& device) {
    return {device.curve(CurveName::requested).current, device.curve(CurveName::allocated).current,
            device.curve(CurveName::active).current, device.curve(CurveName::reserved).current};
}

std::uint64_t large_pool_free(const MemoryStats& stats) {
    const std::uint64_t reserved = stats.reserved_bytes.large_pool.current;
    return reserved - std::min(reserved, stats.active_bytes.large_pool.current);
}

}  // namespace

const char* name_of(CurveName curve) {
    switch (curve) {
        case CurveName::requested:
            return "requested";
        case CurveName::allocated:
            return "allocated";
        case CurveName::active:
            return "active";
        case CurveName::reserved:
            return "reserved";
        case CurveName::device_used:
            return "device_used";
    }
    return "unknown";
}

std::size_t Aggregator::FrameHash::operator()(const Frame& frame) const {
    return HashIndex::mix(frame.address ^ (std::uint64_t{frame.module} << 48) ^
                          (std::uint64_t{frame.python} << 16));
}

Aggregator::Aggregator() : strings_(1), modules_(1), python_frames_(1), stacks_(1) {}

Aggregator::~Aggregator() = default;

/// Runs `work` unless the recording has ended, and turns std::bad_alloc into `incomplete`.
template <typename Work>
void Aggregator::guarded(Work work) noexcept {
    if (has_end_ || integrity_.incomplete) {
        return;
    }
    try {
        work();
    } catch (const std::bad_alloc&) {
        integrity_.incomplete = true;
    }
}

void Aggregator::advance(std::uint64_t time_ns) {
    now_ = std::max(now_, time_ns);
}

// ---- definitions

void Aggregator::on(const ProcessInfo& record) {
    guarded([&] {
        if (!has_process_) {
            process_ = record;
            has_process_ = true;
        }
    });
}

/// Applies an option that the figures depend on. Options are recorded before any memory events.
void Aggregator::apply_option(const OptionValue& option) {
    if (option.name != "MEMLAB_MAX_SPLIT_SIZE_MB" || !devices_.empty()) {
        return;
    }
    std::uint64_t mebibytes = 0;
    const char* const end = option.value.data() + option.value.size();
    const auto [stopped, error] = std::from_chars(option.value.data(), end, mebibytes);
    if (error == std::errc() && stopped == end && mebibytes != 0 && mebibytes >> 44 == 0) {
        max_split_size_ = mebibytes << 20;
    }
}

void Aggregator::on(const OptionValue& record) {
    guarded([&] {
        apply_option(record);
        for (OptionValue& option : options_) {
            if (option.name == record.name) {
                option.value = record.value;
                return;
            }
        }
        options_.push_back(record);
    });
}

void Aggregator::on(const DeviceInfo& record) {
    guarded([&] {
        if (!definitions_.accept(record)) {
            return;
        }
        if (devices_.size() <= record.index) {
            devices_.resize(std::size_t{record.index} + 1);
        }
        auto& device = devices_[record.index];
        if (device == nullptr) {
            device = std::make_unique<DeviceTotals>();
            if (max_split_size_) {
                device->pool.set_max_split_size(*max_split_size_);
            }
        }
        device->info = record;
    });
}

void Aggregator::on(const ContextInfo& record) {
    guarded([&] {
        if (definitions_.accept(record)) {
            contexts_.push_back({.info = record});
        }
    });
}

void Aggregator::on(const ThreadInfo& record) {
    guarded([&] {
        if (!definitions_.valid(record)) {
            return;
        }
        const auto known = thread_names_.find(record.thread);
        if (record.name == 0) {
            thread_names_.erase(record.thread);
        } else if (known != thread_names_.end()) {
            known->second = record.name;
        } else if (thread_names_.size() < max_thread_names) {
            thread_names_.emplace(record.thread, record.name);
        }
    });
}

void Aggregator::on(const StringDef& record) {
    guarded([&] {
        if (definitions_.accept(record)) {
            strings_.push_back(record.text);
        }
    });
}

void Aggregator::on(const ModuleDef& record) {
    guarded([&] {
        if (definitions_.accept(record)) {
            modules_.push_back(record);
        }
    });
}

void Aggregator::on(const PythonFrameDef& record) {
    guarded([&] {
        PythonFrameDef frame = record;
        if (definitions_.repair(frame) && definitions_.accept(frame)) {
            python_frames_.push_back(frame);
        }
    });
}

void Aggregator::on(const StackDef& record) {
    guarded([&] {
        StackDef repaired;
        const bool valid = definitions_.accept(record);
        if (!valid) {
            repaired = record;
            if (!definitions_.repair(repaired) || !definitions_.accept(repaired)) {
                return;
            }
        }
        const StackDef& definition = valid ? record : repaired;
        StackFrames stack{.frames = {}, .truncated = definition.truncated};
        stack.frames.reserve(definition.frames.size());
        for (const Frame& frame : definition.frames) {
            const auto [at, is_new] =
                frame_index_.try_emplace(frame, static_cast<std::uint32_t>(frames_.size()));
            if (is_new) {
                frames_.push_back(frame);
            }
            stack.frames.push_back(at->second);
        }
        stacks_.push_back(std::move(stack));
    });
}

// ---- events

void Aggregator::on(const Event& record) {
    guarded([&] {
        Event repaired;
        const bool valid = definitions_.valid(record);
        if (!valid) {
            repaired = record;
            if (!definitions_.repair(repaired)) {
                return;
            }
        }
        const Event& event = valid ? record : repaired;
        advance(event.time_ns);
        ++event_count_;
        switch (event.type) {
            case EventType::alloc:
                allocate(event);
                break;
            case EventType::free_requested:
                free(event);
                break;
            case EventType::free_completed:
                complete(event);
                break;
            case EventType::segment_alloc:
            case EventType::segment_free:
            case EventType::segment_map:
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
            case EventType::make_room:
                break;  // causes; their effects are events of their own
        }
    });
}

void Aggregator::on_freed(const Event& free_requested) {
    if (!definitions_.valid(free_requested)) {
        on(free_requested);
        on(completed_at_once(free_requested));
        return;
    }
    guarded([&] {
        advance(free_requested.time_ns);
        event_count_ += 2;
        free_immediately(free_requested);
    });
}

std::uint32_t Aggregator::site_index(const Event& event) {
    const std::uint64_t hash =
        HashIndex::spread((std::uint64_t{event.stack} << 32 | event.api) ^
                          HashIndex::spread(std::uint64_t{event.device} << 8 |
                                            static_cast<std::uint64_t>(event.kind)));
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
#pragma GCC unroll 8
        for (std::size_t i = 0; i < curve_count; ++i) {
            Curve& curve = device.curves[i];
            if (curve.current > curve.peak) {
                curve.peak = curve.current;
                curve.peak_time_ns = now_;
                if (i == static_cast<std::size_t>(CurveName::allocated)) {
                    ++device.peak_number;
                    device.peak_moment.holds = true;
                    device.peak_moment.kernels.clear();
                }
            }
            values[i] = curve.current;
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

/// Must be called before the site's live bytes change.
void Aggregator::before_live_change(std::uint32_t index) {
    Site& site = sites_[index];
    if (steps_.following() && counts_as_device_memory(site.kind)) {
        steps_.before_change(index, site.live_bytes);
    }
    const std::uint64_t peak_number = devices_[site.device]->peak_number;
    if (site.peak_checked != peak_number) {
        site.peak_checked = peak_number;
        site.at_peak_count = site.live_count;
        site.at_peak_bytes = site.live_bytes;
    }
}

Holder Aggregator::held_at_peak(std::uint32_t index) const {
    const Site& site = sites_[index];
    if (site.peak_checked != devices_[site.device]->peak_number) {
        return {index, site.live_count, site.live_bytes};
    }
    return {index, site.at_peak_count, site.at_peak_bytes};
}

void Aggregator::allocate(const Event& event) {
    DeviceTotals& device = *devices_[event.device];
    const AddressSpace space = address_space(event.kind);
    overwrite(live_.find(event.address, space));
    // Handles are in no segment, so they cannot be the pool's.
    const bool pooled = event.origin == Origin::pool && space == AddressSpace::pointer;
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
    if (scopes_.any_open() && counts_as_device_memory(event.kind)) {
        owner = scopes_.allocated(event.thread, in_site, size);
    }
    Live& live = live_.add(event.address, space);
    live.site = in_site;
    live.context = event.context;
    live.thread = event.thread;
    live.scopes = owner;
    live.origin = pooled ? Origin::pool : Origin::driver;
    live.small_pool = small_pool;
    live.serial = ++next_serial_;
    live.time_ns = now_;
    live.requested = event.requested;
    live.size = size;
    latest_allocation(event.thread).serial = next_serial_;

    before_live_change(in_site);
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
        device.curve(CurveName::requested).current += event.requested;
        device.curve(CurveName::allocated).current += size;
        device.curve(CurveName::active).current += size;
        if (!pooled) {
            device.curve(CurveName::reserved).current += size;
        }
        commit<Timeline::Change::rise>(device);
    }
}

void Aggregator::free(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event.kind));
    if (at == LiveTable::none || live_[at].pending) {
        ++integrity_.unmatched_frees;
        return;
    }
    Live& live = live_[at];
    const Site& site = sites_[live.site];
    DeviceTotals& device = *devices_[site.device];
    const bool counts = counts_as_device_memory(site.kind);
    apply_free_requested(live, event.thread);
    if (live.origin == Origin::driver || event.origin == Origin::driver) {
        apply_free_completed(at);
    }
    if (counts) {
        commit<Timeline::Change::fall>(device);
    }
}

void Aggregator::complete(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event.kind));
    if (at == LiveTable::none) {
        return;  // its free_requested was counted as unmatched
    }
    DeviceTotals& device = *devices_[sites_[live_[at].site].device];
    if (!live_[at].pending) {
        apply_free_requested(live_[at], event.thread);
    }
    apply_free_completed(at);
    commit<Timeline::Change::fall>(device);
}

/// free() and complete() in one. No curve falls twice, so one commit suffices.
void Aggregator::free_immediately(const Event& event) {
    const std::uint32_t at = live_.find(event.address, address_space(event.kind));
    if (at == LiveTable::none) {
        ++integrity_.unmatched_frees;
        return;
    }
    DeviceTotals& device = *devices_[sites_[live_[at].site].device];
    if (live_[at].pending) {
        ++integrity_.unmatched_frees;
    } else {
        apply_free_requested(live_[at], event.thread);
    }
    apply_free_completed(at);
    commit<Timeline::Change::fall>(device);
}

/// The application freed it. Changes the curves; the caller commits.
void Aggregator::apply_free_requested(Live& live, std::optional<std::uint32_t> freeing) {
    Site& site = sites_[live.site];
    site.lifetimes.add(now_ - live.time_ns);
    DeviceTotals& device = *devices_[site.device];
    live.pending = true;
    before_live_change(live.site);
    if (scopes_.any_open() && counts_as_device_memory(site.kind)) {
        scopes_.freed(freeing, live.scopes, live.site, live.size, live.serial);
    }
    if (labels_.any_live() && live.space == AddressSpace::pointer) {
        labels_.ended(live.address, live.size);
    }
    --site.live_count;
    site.live_bytes -= live.size;
    KindTotals& kind = device.kinds[static_cast<std::size_t>(site.kind)];
    --kind.live_count;
    kind.live_bytes -= live.size;
    Latest& latest = latest_allocation(live.thread);
    if (latest.serial == live.serial) {
        latest.serial = 0;
        site.temporaries += freeing ? 1 : 0;
    }
    if (counts_as_device_memory(site.kind)) {
        device.curve(CurveName::requested).current -= live.requested;
        device.curve(CurveName::allocated).current -= live.size;
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
void Aggregator::apply_free_completed(std::uint32_t at) {
    const Live& live = live_[at];
    const Site& site = sites_[live.site];
    DeviceTotals& device = *devices_[site.device];
    if (counts_as_device_memory(site.kind)) {
        device.curve(CurveName::active).current -= live.size;
        if (live.origin == Origin::driver) {
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
    if (!live_[at].pending) {
        apply_free_requested(live_[at], {});
    }
    apply_free_completed(at);
    commit(device);
}

/// Ends the pool's blocks in a range that is being reused or freed.
void Aggregator::end_blocks_in(DeviceTotals& device, std::uint64_t address, std::uint64_t size) {
    for (const std::uint64_t block : device.pool.blocks_in(address, size)) {
        overwrite(live_.find(block, AddressSpace::pointer));
    }
}

void Aggregator::segment(const Event& event) {
    DeviceTotals& device = *devices_[event.device];
    PoolLayout& pool = device.pool;
    Curve& reserved = device.curve(CurveName::reserved);
    if (event.type == EventType::segment_alloc || event.type == EventType::segment_map) {
        end_blocks_in(device, event.address, event.size);
        for (const std::uint64_t base : pool.segments_in(event.address, event.size)) {
            end_blocks_in(device, base, pool.segment_size(base));
            reserved.current -= pool.remove_segment(base);
            ++integrity_.overwritten_segments;
        }
        Fragmentation& fragmentation = device.fragmentation;
        const std::uint64_t free_before = pool.gap_bytes();
        const std::uint64_t largest_before = pool.largest_gap();
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
        reserved.current += added;
    } else if (event.type == EventType::segment_free) {
        const std::uint64_t size = pool.segment_size(event.address);
        if (size == 0) {
            ++integrity_.unmatched_segment_frees;
            return;
        }
        end_blocks_in(device, event.address, size);
        reserved.current -= pool.remove_segment(event.address);
    } else {
        end_blocks_in(device, event.address, event.size);
        const std::uint64_t unmapped = pool.unmap(event.address, event.size);
        integrity_.unmatched_segment_frees += unmapped == 0 ? 1 : 0;
        reserved.current -= unmapped;
    }
    commit(device);
}

/// The allocated curve, all devices together.
std::uint64_t Aggregator::total_allocated() const {
    std::uint64_t bytes = 0;
    for (const auto& device : devices_) {
        bytes += device == nullptr ? 0 : device->curve(CurveName::allocated).current;
    }
    return bytes;
}

void Aggregator::scope(const Event& event) {
    if (event.type == EventType::scope_begin) {
        scopes_.begin({.thread = event.thread, .domain = event.requested, .range = event.address},
                      event.name, strings_[event.name], now_, total_allocated(), next_serial_);
    } else if (event.stream == ended_with_thread) {
        scopes_.end_thread(event.thread, now_);
    } else {
        const ScopeStats::Ended ended = scopes_.end(
            {.thread = event.thread, .domain = event.requested, .range = event.address}, now_);
        if (ended.happened) {
            steps_.end(ended.range ? StepKind::range : StepKind::scope, ended.path,
                       total_allocated(), ended.outermost);
        }
    }
}

void Aggregator::label(const Event& event) {
    const std::uint32_t at = live_.find(event.address, AddressSpace::pointer);
    if (at != LiveTable::none && !live_[at].pending) {
        labels_.label(event.address, event.name, live_[at].size, live_[at].site);
    }
}

void Aggregator::mark(const Event& event) {
    ++mark_count_;
    steps_.end(StepKind::mark, scopes_.families().intern(event.name, strings_[event.name]),
               total_allocated(), true);
    MarkTotals mark{.type = event.type,
                    .name = event.name,
                    .thread = event.thread,
                    .time_ns = now_,
                    .devices = {}};
    const bool keep = marks_.size() < max_marks;
    for (const auto& device : devices_) {
        if (device == nullptr) {
            continue;
        }
        if (keep) {
            mark.devices.push_back({.device = device->info.index,
                                    .current = current_curves(*device),
                                    .allocated_peak = device->allocated_since_mark,
                                    .reserved_peak = device->reserved_since_mark});
        }
        device->allocated_since_mark = device->curve(CurveName::allocated).current;
        device->reserved_since_mark = device->curve(CurveName::reserved).current;
    }
    if (keep) {
        marks_.push_back(std::move(mark));
    }
}

void Aggregator::on(const ContextLost& record) {
    guarded([&] {
        if (!definitions_.valid(record)) {
            return;
        }
        advance(record.time_ns);
        ContextTotals& context = contexts_[record.context - 1];
        if (!context.lost) {
            context.lost = true;
            context.lost_time_ns = now_;
        }
        std::vector<std::uint32_t> lost = live_.find_by_context(record.context);
        // By address, so that the figures do not depend on the order of a table.
        std::sort(lost.begin(), lost.end(), [this](std::uint32_t a, std::uint32_t b) {
            const Live& first = live_[a];
            const Live& second = live_[b];
            return first.space != second.space ? first.space < second.space
                                               : first.address < second.address;
        });
        for (const std::uint32_t at : lost) {
            if (!live_[at].pending) {
                apply_free_requested(live_[at], {});
            }
            apply_free_completed(at);
        }
        for (const auto& device : devices_) {
            if (device == nullptr) {
                continue;
            }
            for (const std::uint64_t base : device->pool.context_segments(record.context)) {
                end_blocks_in(*device, base, device->pool.segment_size(base));
                device->curve(CurveName::reserved).current -= device->pool.remove_segment(base);
            }
            commit(*device);
        }
    });
}

void Aggregator::on(const OomEvent& record) {
    guarded([&] {
        OomEvent event = record;
        if (!definitions_.repair(event)) {
            return;
        }
        advance(event.time_ns);
        event.time_ns = now_;
        ++oom_count_;
        DeviceTotals& device = *devices_[event.device];
        device.pool.stats.num_ooms += event.kind == MemoryKind::device ? 1 : 0;
        if (ooms_.size() < max_ooms) {
            OomTotals totals{.event = event,
                             .current = current_curves(device),
                             .pool = {.reserved = device.pool.stats.reserved_bytes.all.current,
                                      .active = device.pool.stats.active_bytes.all.current,
                                      .allocated = device.pool.stats.allocated_bytes.all.current,
                                      .largest_free = device.pool.largest_gap(),
                                      .large_free = large_pool_free(device.pool.stats)},
                             .kinds = {},
                             .holders = composition_now(event.device, max_oom_holders),
                             .allocations = {},
                             .labels = {}};
            for (std::size_t kind = 0; kind < totals.kinds.size(); ++kind) {
                totals.kinds[kind] = device.kinds[kind].live_bytes;
            }
            totals.allocations.reserve(totals.holders.sites.size());
            for (const Holder& holder : totals.holders.sites) {
                totals.allocations.push_back(sites_[holder.site].count);
            }
            if (labels_.any_live()) {
                totals.labels = holder_labels(totals.holders);
            }
            ooms_.push_back(std::move(totals));
        }
    });
}

void Aggregator::on(const DeviceSample& record) {
    guarded([&] {
        if (!definitions_.valid(record)) {
            return;
        }
        advance(record.time_ns);
        DeviceTotals& device = *devices_[record.device];
        device.sampled = true;
        device.curve(CurveName::device_used).current = std::min(record.used, Timeline::unknown - 1);
        commit(device);
    });
}

void Aggregator::on(const Missed& record) {
    guarded([&] {
        Missed missed = record;
        definitions_.repair(missed);
        advance(missed.time_ns);
        const auto [at, is_new] = missed_index_.try_emplace(missed.reason, missed_.size());
        if (is_new) {
            missed_.push_back({.reason = missed.reason, .first_time_ns = now_});
        }
        MissedTotals& totals = missed_[at->second];
        totals.count += missed.count;
        totals.bytes += missed.bytes;
    });
}

std::uint64_t PeakMoment::end_ns(std::uint64_t peak_ns) const {
    constexpr std::uint64_t never = ~std::uint64_t{0};
    const std::uint64_t min_end = peak_ns > never - min_ns ? never : peak_ns + min_ns;
    return holds ? never : std::max(fell_ns, min_end);
}

// Work is recorded after it has ended. So all work recorded before a new peak ran before it, and
// none has to be kept for later peaks.
void Aggregator::on(const Work& record) {
    guarded([&] {
        Work work = record;
        if (!definitions_.repair(work)) {
            return;
        }
        DeviceTotals& device = *devices_[work.device];
        WorkTotals& totals = device.work[static_cast<std::size_t>(work.kind)];
        ++totals.count;
        totals.busy_ns += work.end_ns - work.start_ns;
        totals.bytes += work.kind == WorkKind::kernel ? 0 : work.bytes;
        const Curve& allocated = device.curve(CurveName::allocated);
        const std::uint64_t begin = allocated.peak_time_ns;
        const std::uint64_t end = device.peak_moment.end_ns(begin);
        if (work.kind != WorkKind::kernel || allocated.peak == 0 || work.start_ns >= end ||
            work.end_ns < begin) {
            return;
        }
        KernelAtPeak& kernel = device.peak_moment.kernels[work.name];
        kernel.name = work.name;
        ++kernel.count;
        kernel.busy_ns += std::min(work.end_ns, end) - std::max(work.start_ns, begin);
    });
}

std::vector<KernelAtPeak> Aggregator::kernels_at_peak(std::uint32_t device) const {
    std::vector<KernelAtPeak> kernels;
    for (const auto& [name, kernel] : devices_[device]->peak_moment.kernels) {
        kernels.push_back(kernel);
    }
    std::sort(kernels.begin(), kernels.end(), [](const KernelAtPeak& a, const KernelAtPeak& b) {
        return a.busy_ns != b.busy_ns ? a.busy_ns > b.busy_ns : a.name < b.name;
    });
    return kernels;
}

void Aggregator::on(const Bypass& record) {
    guarded([&] {
        Bypass bypass = record;
        if (!definitions_.repair(bypass)) {
            return;
        }
        advance(bypass.time_ns);
        ++bypassed_count_;
        bypassed_bytes_ += bypass.bytes;
        const auto same = [&bypass](const BypassTotals& totals) {
            return totals.device == bypass.device && totals.kind == bypass.kind &&
                   totals.api == bypass.api && totals.stack == bypass.stack;
        };
        auto at = std::find_if(bypasses_.begin(), bypasses_.end(), same);
        if (at == bypasses_.end()) {
            if (bypasses_.size() == max_bypasses) {
                return;
            }
            at = bypasses_.insert(at, {.device = bypass.device,
                                       .kind = bypass.kind,
                                       .api = bypass.api,
                                       .stack = bypass.stack,
                                       .first_time_ns = bypass.time_ns});
        }
        ++at->count;
        at->bytes += bypass.bytes;
    });
}

void Aggregator::on(const Coverage& record) {
    guarded([&] {
        Coverage coverage = record;
        definitions_.repair(coverage);
        advance(coverage.time_ns);
        coverage_ = coverage;
    });
}

void Aggregator::on(const LogStopped& record) {
    guarded([&] {
        advance(record.time_ns);
        end_.log_stopped_because = record.reason;
        end_.events_dropped = record.events_dropped;
    });
}

void Aggregator::on(const End& record) {
    guarded([&] {
        advance(record.time_ns);
        const LogStopped stopped{.reason = end_.log_stopped_because,
                                 .events_dropped = end_.events_dropped};
        end_ = record;
        end_.events_dropped = std::max(end_.events_dropped, stopped.events_dropped);
        if (end_.log_stopped_because.empty()) {
            end_.log_stopped_because = stopped.reason;
        }
        has_end_ = true;
        ended_ = record.kind == EndKind::quick_exit ? Ended::quick_exit : Ended::exit;
    });
}

// ---- composition

std::vector<SiteLabel> Aggregator::holder_labels(const Composition& holders) const {
    std::vector<SiteLabel> labels = labels_.by_site();
    std::erase_if(labels, [&](const SiteLabel& label) {
        return label.live_count == 0 ||
               std::none_of(holders.sites.begin(), holders.sites.end(),
                            [&](const Holder& holder) { return holder.site == label.site; });
    });
    return labels;
}

std::vector<StepTotals> Aggregator::steps() const {
    return steps_.totals([this](std::uint32_t site) { return sites_[site].live_bytes; });
}

std::vector<LiveTotals> Aggregator::largest_live(std::size_t limit) const {
    const auto larger = [](const LiveTotals& a, const LiveTotals& b) {
        return a.size != b.size ? a.size > b.size : a.address < b.address;
    };
    std::vector<LiveTotals> largest;  // a heap with the smallest at the front
    largest.reserve(limit + 1);
    live_.for_each([&](std::uint32_t, const Live& live) {
        if (live.pending) {
            return;
        }
        const bool pointer = live.space == AddressSpace::pointer;
        largest.push_back({.address = live.address,
                           .site = live.site,
                           .thread = live.thread,
                           .label = pointer ? labels_.name_of(live.address) : 0,
                           .time_ns = live.time_ns,
                           .requested = live.requested,
                           .size = live.size});
        std::push_heap(largest.begin(), largest.end(), larger);
        if (largest.size() > limit) {
            std::pop_heap(largest.begin(), largest.end(), larger);
            largest.pop_back();
        }
    });
    std::sort_heap(largest.begin(), largest.end(), larger);
    return largest;
}

template <typename Held>
Composition Aggregator::compose(std::uint32_t device, std::size_t limit, Held held) const {
    Composition result;
    for (std::uint32_t index = 0; index < sites_.size(); ++index) {
        const Site& site = sites_[index];
        if (site.device != device || !counts_as_device_memory(site.kind)) {
            continue;
        }
        const Holder holder = held(index);
        if (holder.count == 0) {
            continue;
        }
        result.count += holder.count;
        result.bytes += holder.bytes;
        result.sites.push_back(holder);
    }
    std::sort(result.sites.begin(), result.sites.end(), [](const Holder& a, const Holder& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
    });
    for (std::size_t i = limit; i < result.sites.size(); ++i) {
        ++result.other_sites;
        result.other_count += result.sites[i].count;
        result.other_bytes += result.sites[i].bytes;
    }
    result.sites.resize(std::min(limit, result.sites.size()));
    return result;
}

Composition Aggregator::composition_at_peak(std::uint32_t device, std::size_t limit) const {
    return compose(device, limit, [this](std::uint32_t index) { return held_at_peak(index); });
}

Composition Aggregator::composition_now(std::uint32_t device, std::size_t limit) const {
    return compose(device, limit, [this](std::uint32_t index) {
        return Holder{index, sites_[index].live_count, sites_[index].live_bytes};
    });
}

}  // namespace memlab::trace
