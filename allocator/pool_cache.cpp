// What goes back to the device: on request, for lack of memory and above a threshold.
#include "allocator/pool_impl.hpp"

#include <algorithm>

namespace memlab::allocator {

std::uint64_t Pool::Impl::release_cached(bool wait) {
    const Lock lock(mutex_);
    if (wait) {
        wait_for_all_pending();
        wait_for_all_deferred();
    } else {
        retire_completed();
    }
    return release_all_unused();
}

void Pool::Impl::release_some() {
    const Lock lock(mutex_);
    bool more = false;
    Unmapping& unmapping = begin_unmapping();
    observer_.on_empty_cache();
    release_unused(unmapping, &more);
}

void Pool::Impl::release_for_retry(std::uint64_t requested, Tag tag) {
    const Lock lock(mutex_);
    retry(requested, tag);
}

/// Frees unused memory, or a part of it: then true.
bool Pool::Impl::retry(std::uint64_t requested, Tag tag) {
    bool more = false;
    Unmapping& unmapping = begin_unmapping();
    ++stats_.num_alloc_retries;
    observer_.on_alloc_retry(requested, tag);
    release_unused(unmapping, &more);
    return more;
}

void Pool::Impl::prepare_retry(std::uint64_t requested, Tag tag) {
    if (retry(requested, tag)) {
        release_all_unused();
    }
}

std::uint64_t Pool::Impl::release_all_unused() {
    std::uint64_t taken = 0;
    bool more = false;
    do {
        Unmapping& unmapping = begin_unmapping();
        observer_.on_empty_cache();
        taken += release_unused(unmapping, &more);
    } while (more);
    return taken;
}

/// Removes an unused segment from the pool; the caller then frees it with release_segments().
void Pool::Impl::detach_segment(const Segment& segment, Unmapping& unmapping,
                                ReleasedSegments& released) {
    observer_.on_segment_free(segment.base, segment.size);
    ++stats_.num_device_free;
    counters_.decrease(Counter::segment, segment.small(), 1);
    counters_.decrease(Counter::reserved_bytes, segment.small(), segment.size);
    if (policy_.oversize(segment.size)) {
        decrease(stats_.oversize_segments, 1);
    }
    unmapping.segment_bytes += segment.size;
    store_.remove_segment(segment.base, released);
}

/// Frees detached segments, without the lock, since the backend may wait for the device. Returns
/// the bytes that it took back.
std::uint64_t Pool::Impl::release_segments(Unmapping& unmapping, const ReleasedSegments& released) {
    const std::uint64_t epoch = epoch_;
    std::uint64_t taken = 0;
    for (const auto& entry : released) {
        if (epoch_ != epoch) {
            break;  // the context is gone with the rest; the addresses may be in use again
        }
        const Segment& segment = entry.second;
        mutex_.unlock();
        if (backend_.segment_free(segment.base, segment.size).ok()) {
            taken += segment.size;
        }
        mutex_.lock();
        unmapping.segment_bytes -= segment.size;
        ++gone_back_;
        notify_change();
    }
    return taken;
}

/// Frees unused segments, then free whole chunks of ranges; *more: not all of them.
std::uint64_t Pool::Impl::release_unused(Unmapping& unmapping, bool* more) {
    *more = false;
    ReleasedSegments released;
    for (const Area area : {Area::large, Area::small}) {
        *more = *more || !detach_unused(area, unmapping, released, [](Segment&) { return true; });
    }
    std::uint64_t taken = 0;
    for (const Area area : {Area::large, Area::small}) {
        if (*more) {
            break;
        }
        unmap_free_pages(
            area, [](Block&) { return true; },
            [&](const BlockStore::Pages& pages) {
                mutex_.assert_held();
                *more = !may_unmap_more(unmapping, &taken);
                return !*more && (unmap(unmapping, pages), true);
            });
    }
    for (const Area area : {Area::own_chunks, Area::own_page}) {
        while (Block* const block = *more ? nullptr : store_.oldest(area)) {
            *more = !may_unmap_more(unmapping, &taken);
            if (!*more) {
                unmap(unmapping, {block, block->address, block->size});
            }
        }
    }
    taken += unmap_now(unmapping);
    taken += release_segments(unmapping, released);
    end_unmapping(unmapping);
    return taken;
}

/// A list of places to give back; waits for one if all are in use.
Pool::Impl::Unmapping& Pool::Impl::begin_unmapping() {
    for (;;) {
        if (Unmapping* const unmapping = free_unmapping()) {
            return *unmapping;
        }
        wait_for_change();
    }
}

/// Null: all are in use.
Pool::Impl::Unmapping* Pool::Impl::free_unmapping() {
    for (Unmapping& unmapping : unmappings_) {
        if (!unmapping.in_use) {
            unmapping.count = 0;
            unmapping.segment_bytes = 0;
            begin_busy(unmapping.in_use);
            return &unmapping;
        }
    }
    return nullptr;
}

/// False when the lock has to be dropped before more. Without a limit, in replays, the places noted
/// so far are given back at once, with the lock held.
bool Pool::Impl::may_unmap_more(Unmapping& unmapping, std::uint64_t* taken) {
    const std::uint64_t limit = policy_.options().unmaps_per_hold;
    if (unmapping.count < std::min<std::uint64_t>(limit, Unmapping::capacity)) {
        return true;
    }
    if (limit <= Unmapping::capacity) {
        return false;
    }
    *taken += unmap_now(unmapping, true);
    return true;
}

/// Takes free chunks out of the pool, and notes them. False: there is no host memory to split a
/// block.
bool Pool::Impl::unmap(Unmapping& unmapping, const BlockStore::Pages& pages) {
    if (pages.bytes != pages.block->size && !store_.reserve()) {
        return false;
    }
    const Segment& segment = *pages.block->segment;
    unmapping.places[unmapping.count++] = {
        pages.begin, pages.bytes, is_packed(segment.area) ? pages.bytes : max_own_chunk_bytes};
    observer_.on_segment_unmap(pages.begin, pages.bytes);
    store_.unmap(*pages.block, pages.begin, pages.bytes);
    ++stats_.num_device_free;
    counters_.decrease(Counter::segment, segment.small(), segment.mapped == 0 ? 1 : 0);
    counters_.decrease(Counter::reserved_bytes, segment.small(), pages.bytes);
    return true;
}

/// Gives back what was noted, without the lock unless `keep_lock`; returns the bytes that the
/// backend took back.
std::uint64_t Pool::Impl::unmap_now(Unmapping& unmapping, bool keep_lock) {
    if (unmapping.count == 0) {
        return 0;
    }
    std::uint64_t taken = 0;
    bool same = true;  // else the context is gone, and the addresses may be in use again
    for (unsigned i = 0; same && i < unmapping.count; ++i) {
        const Unmapping::Place& place = unmapping.places[i];
        for (std::uint64_t done = 0; same && done < place.bytes; done += place.piece) {
            const std::uint64_t bytes = std::min(place.piece, place.bytes - done);
            same = without_lock(keep_lock, [&] {
                taken += backend_.pages_unmap(place.begin + done, bytes).ok() ? bytes : 0;
            });
        }
    }
    unmapping.count = 0;
    ++gone_back_;
    notify_change();
    return taken;
}

void Pool::Impl::end_unmapping(Unmapping& unmapping) {
    end_busy(unmapping.in_use);
}

bool Pool::Impl::is_unmapping(Address begin, std::uint64_t bytes) const {
    return std::any_of(unmappings_.begin(), unmappings_.end(), [&](const Unmapping& unmapping) {
        const auto end = unmapping.places.begin() + (unmapping.in_use ? unmapping.count : 0);
        return std::any_of(unmapping.places.begin(), end, [&](const Unmapping::Place& place) {
            return place.begin < begin + bytes && begin < place.begin + place.bytes;
        });
    });
}

bool Pool::Impl::any_unmapping() const {
    return std::any_of(unmappings_.begin(), unmappings_.end(), [](const Unmapping& each) {
        return each.in_use && (each.count != 0 || each.segment_bytes != 0);
    });
}

/// Keeps the reserved bytes at a mark while there are free whole chunks: before a growth would
/// exceed it, unmaps the excess, but not the blocks that the growth extends. The mark is their own
/// peak, or a 24th above that of the active bytes: with less room than that a program whose sizes
/// vary, and differ from step to step in where they fit, would unmap and map some chunks in each
/// step, and wait for the device each time. True if it unmapped something; not all, maybe.
bool Pool::Impl::reclaim_pages(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag) {
    Unmapping* unmapping = nullptr;
    std::uint64_t taken = 0;
    bool unmapped = false;
    for (;;) {
        const GrowthPlan growth = plan_growth(plan);
        const auto reserved = counters_.current(Counter::reserved_bytes);
        const auto active_peak = counters_.peak(Counter::active_bytes);
        const auto mark =
            std::max(counters_.peak(Counter::reserved_bytes), active_peak + active_peak / 24);
        if (growth.bytes <= mark - reserved) {
            break;
        }
        const std::uint64_t excess = growth.bytes - (mark - reserved);
        const BlockStore::Pages pages = store_.pages_for(excess, growth.at);
        if (pages.bytes == 0) {
            break;
        }
        if (unmapping == nullptr) {
            if (!may_fit(plan)) {
                break;
            }
            unmapping = free_unmapping();
            if (unmapping == nullptr) {
                wait_for_change();
                return true;
            }
            observer_.on_reclaim(requested, tag);
        }
        if (!may_unmap_more(*unmapping, &taken)) {
            break;
        }
        if (!unmap(*unmapping, BlockStore::last_chunks(pages, excess))) {
            break;
        }
        unmapped = true;
    }
    if (unmapping != nullptr) {
        unmap_now(*unmapping);
        end_unmapping(*unmapping);
    }
    return unmapped;
}

void Pool::Impl::reclaim(std::uint64_t requested, Tag tag) {
    const Lock lock(mutex_);
    const auto plan = policy_.plan(requested);
    // Each on_reclaim event stands for one of the two: garbage collection while there is garbage,
    // then the pages of ranges.
    if (plan && !collect_garbage(requested, tag) && policy_.options().expandable) {
        reclaim_pages(*plan, requested, tag);
    }
}

/// PyTorch's garbage collection: while more is reserved than the threshold, frees the unused large
/// segments that are at least as old as their average. Age is counted in allocations. True when
/// there were unused segments.
bool Pool::Impl::collect_garbage(std::uint64_t requested, Tag tag) {
    const auto reserved = counters_.current(Counter::reserved_bytes);
    if (reserved <= garbage_limit_) {
        return false;
    }
    const std::uint64_t target = reserved - garbage_limit_;
    const std::uint64_t now = store_.takes(Area::large);
    std::uint64_t total_age = 0;
    std::uint64_t count = 0;
    for (const Segment* each = store_.oldest_segment(Area::large); each != nullptr;
         each = each->unused_links.right) {
        total_age += now - each->unused_since;
        ++count;
    }
    if (count == 0) {
        return false;
    }
    Unmapping* const unmapping = free_unmapping();
    if (unmapping == nullptr) {
        wait_for_change();
        return true;
    }
    observer_.on_reclaim(requested, tag);
    ReleasedSegments released;
    bool all = true;
    while (all && reserved - counters_.current(Counter::reserved_bytes) < target && count != 0) {
        // The average is fixed for a sweep, and a sweep is completed unless others have to have
        // their turn.
        const std::uint64_t sweep_age = total_age;
        const std::uint64_t sweep_count = count;
        all = detach_unused(Area::large, *unmapping, released, [&](const Segment& segment) {
            const std::uint64_t age = now - segment.unused_since;
            const bool old = age * sweep_count >= sweep_age;
            total_age -= old ? age : 0;
            count -= old ? 1 : 0;
            return old;
        });
    }
    release_segments(*unmapping, released);
    end_unmapping(*unmapping);
    return true;
}

void Pool::Impl::abandon() {
    const Lock lock(mutex_);
    ++epoch_;
    pending_.clear();
    streams_ = std::vector<StreamFrees>();
    deferred_.clear();
    store_.clear();
    counters_.clear_current();
    clear_current(stats_.oversize_allocations);
    clear_current(stats_.oversize_segments);
    trimmed_at_ns_ = never_seen;
    grown_since_trim_ = false;
    notify_change();
}

}  // namespace memlab::allocator
