// What goes back to the device: on request, for lack of memory, by age and above a threshold.
#include "allocator/pool_impl.hpp"

#include <algorithm>

namespace memlab::allocator {

std::uint64_t Pool::Impl::release_cached(bool wait) {
    Lock lock(mutex_);
    if (wait) {
        wait_for_all_pending(lock);
        wait_for_all_deferred(lock);
    } else {
        retire_completed();
    }
    observer_.on_empty_cache();
    return release_unused(lock);
}

void Pool::Impl::release_for_retry(std::uint64_t requested, Tag tag) {
    Lock lock(mutex_);
    prepare_retry(lock, requested, tag);
}

void Pool::Impl::prepare_retry(Lock& lock, std::uint64_t requested, Tag tag) {
    ++stats_.num_alloc_retries;
    observer_.on_alloc_retry(requested, tag);
    release_unused(lock);
}

/// Removes an unused segment from the pool; the caller then frees it with release_segments().
void Pool::Impl::detach_segment(const Segment& segment, ReleasedSegments& released) {
    observer_.on_segment_free(segment.base, segment.size);
    ++stats_.num_device_free;
    counters_.decrease(Counter::segment, segment.small, 1);
    counters_.decrease(Counter::reserved_bytes, segment.small, segment.size);
    if (policy_.oversize(segment.size)) {
        decrease(stats_.oversize_segments, 1);
    }
    store_.remove_segment(segment.base, released);
}

/// Frees detached segments, without the lock, since the backend may wait for the device. Returns
/// the bytes that it took back.
std::uint64_t Pool::Impl::release_segments(Lock& lock, const ReleasedSegments& released) {
    if (released.empty()) {
        return 0;
    }
    const std::uint64_t epoch = epoch_;
    std::uint64_t taken = 0;
    for (const auto& entry : released) {
        if (epoch_ != epoch) {
            break;  // the context is gone with the rest; the addresses may be in use again
        }
        const Segment& segment = entry.second;
        lock.unlock();
        if (backend_.segment_free(segment.base, segment.size).ok()) {
            taken += segment.size;
        }
        lock.lock();
    }
    return taken;
}

/// Frees all unused segments, then the free whole chunks of ranges.
std::uint64_t Pool::Impl::release_unused(Lock& lock) {
    ReleasedSegments released;
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](const Segment& segment) { detach_segment(segment, released); });
    }
    std::uint64_t unmapped = 0;
    for (const bool small : {false, true}) {
        for_each_free_pages(small, [&](const BlockStore::Pages& pages) {
            unmapped += unmap(*pages.block, pages.begin, pages.bytes);
        });
    }
    return unmapped + release_segments(lock, released);
}

/// Unmaps free chunks; returns the bytes that the backend took back.
std::uint64_t Pool::Impl::unmap(Block& block, Address begin, std::uint64_t bytes) {
    if (!store_.reserve()) {
        return 0;
    }
    const Segment& segment = *block.segment;
    observer_.on_segment_unmap(begin, bytes);
    store_.unmap(block, begin, bytes);
    ++stats_.num_device_free;
    counters_.decrease(Counter::segment, segment.small, segment.mapped == 0 ? 1 : 0);
    counters_.decrease(Counter::reserved_bytes, segment.small, bytes);
    return backend_.pages_unmap(begin, bytes).ok() ? bytes : 0;
}

/// Keeps the reserved bytes at a mark while there are free whole chunks: before a growth would
/// exceed it, unmaps the excess, largest free blocks first, but not the blocks that the growth
/// extends. The mark is their own peak, or a 24th above that of the active bytes: with less room
/// than that a program whose sizes vary, and differ from step to step in where they fit, would
/// unmap and map some chunks in each step, and wait for the device each time.
void Pool::Impl::reclaim_pages(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag) {
    const std::uint64_t whole = (plan.size + page_bytes - 1) / page_bytes * page_bytes;
    for (bool reported = false;; reported = true) {
        const BlockStore::Growth growth = store_.best_growth(plan.size, plan.small);
        const std::uint64_t more = growth.hole != nullptr ? growth.bytes : whole;
        const auto reserved = counters_.current(Counter::reserved_bytes);
        const auto active_peak = counters_.peak(Counter::active_bytes);
        const auto mark =
            std::max(counters_.peak(Counter::reserved_bytes), active_peak + active_peak / 24);
        if (more <= mark - reserved) {
            return;
        }
        const std::uint64_t excess = more - (mark - reserved);
        const BlockStore::Pages pages = store_.largest_free_pages(growth);
        if (pages.bytes == 0) {
            return;
        }
        if (!reported) {
            if (!may_fit(plan)) {
                return;
            }
            observer_.on_reclaim(requested, tag);
        }
        const BlockStore::Pages last = BlockStore::last_chunks(pages, excess);
        if (!store_.reserve()) {
            return;
        }
        unmap(*last.block, last.begin, last.bytes);
    }
}

/// When what a tick first saw idle at this time is given back; never_seen if it saw none.
std::uint64_t Pool::Impl::due_at(std::uint64_t idle_since_ns) const {
    return idle_since_ns + std::min(trim_delay_ns_, never_seen - idle_since_ns);
}

std::uint64_t Pool::Impl::tick(std::uint64_t now_ns) {
    Lock lock(mutex_);
    if (trim_delay_ns_ == 0) {
        return 0;
    }
    retire_completed();
    const auto is_due = [&](std::uint64_t idle_since_ns) {
        return now_ns >= idle_since_ns && now_ns - idle_since_ns >= trim_delay_ns_;
    };
    // Nothing has to be looked at unless something became idle or is due: a program may have many
    // free blocks, and the replay of one ticks at each allocation.
    const BlockStore::Idle idle = store_.take_idle();
    next_trim_ns_ = std::min(next_trim_ns_, due_at(idle.oldest_ns));
    if (!grown_since_trim_ && !idle.unseen && now_ns < next_trim_ns_) {
        return 0;
    }
    bool changes = grown_since_trim_;
    next_trim_ns_ = never_seen;
    const auto check = [&](std::uint64_t idle_since_ns) {
        changes = changes || idle_since_ns == never_seen || is_due(idle_since_ns);
        next_trim_ns_ = std::min(next_trim_ns_, due_at(idle_since_ns));
    };
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](const Segment& segment) { check(segment.idle_since_ns); });
        for_each_free_pages(
            small, [&](const BlockStore::Pages& pages) { check(pages.block->idle.since_ns); });
    }
    if (!changes) {
        return 0;
    }
    observer_.on_tick(now_ns);
    next_trim_ns_ = 0;  // the next tick looks at what this one leaves
    if (grown_since_trim_) {
        if (now_ns - trimmed_at_ns_ <= PoolOptions::regrown_within_ns) {
            trim_delay_ns_ += std::min(trim_delay_ns_, never_seen - trim_delay_ns_);
        }
        trimmed_at_ns_ = never_seen;
        grown_since_trim_ = false;
    }
    ReleasedSegments released;
    std::uint64_t unmapped = 0;
    // Whether the idle time has reached the limit; starts it where it was not running.
    const auto expired = [&](std::uint64_t* idle_since_ns) {
        if (*idle_since_ns == never_seen) {
            *idle_since_ns = now_ns;
            return false;
        }
        return is_due(*idle_since_ns);
    };
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](Segment& segment) {
            if (expired(&segment.idle_since_ns)) {
                detach_segment(segment, released);
            }
        });
        for_each_free_pages(small, [&](const BlockStore::Pages& pages) {
            if (expired(&pages.block->idle.since_ns)) {
                unmapped += unmap(*pages.block, pages.begin, pages.bytes);
            }
        });
    }
    if (unmapped != 0 || !released.empty()) {
        trimmed_at_ns_ = now_ns;
    }
    return unmapped + release_segments(lock, released);
}

void Pool::Impl::reclaim(std::uint64_t requested, Tag tag) {
    Lock lock(mutex_);
    const auto plan = policy_.plan(requested);
    // Each on_reclaim event stands for one of the two: garbage collection while there is garbage,
    // then the pages of ranges.
    if (plan && !collect_garbage(lock, requested, tag) && policy_.options().expandable) {
        reclaim_pages(*plan, requested, tag);
    }
}

/// PyTorch's garbage collection: while more is reserved than the threshold, frees the unused large
/// segments that are at least as old as their average. Age is counted in allocations. True when
/// there were unused segments.
bool Pool::Impl::collect_garbage(Lock& lock, std::uint64_t requested, Tag tag) {
    const auto reserved = counters_.current(Counter::reserved_bytes);
    if (reserved <= garbage_limit_) {
        return false;
    }
    const std::uint64_t target = reserved - garbage_limit_;
    const std::uint64_t now = store_.takes(false);
    std::uint64_t total_age = 0;
    std::uint64_t count = 0;
    for_each_unused(false, [&](const Segment& segment) {
        total_age += now - segment.unused_since;
        ++count;
    });
    if (count == 0) {
        return false;
    }
    observer_.on_reclaim(requested, tag);
    ReleasedSegments released;
    std::uint64_t reclaimed = 0;
    while (reclaimed < target && count != 0) {
        // The average is fixed for a sweep, and a sweep is always completed.
        const std::uint64_t sweep_age = total_age;
        const std::uint64_t sweep_count = count;
        for_each_unused(false, [&](const Segment& segment) {
            const std::uint64_t age = now - segment.unused_since;
            if (age * sweep_count >= sweep_age) {
                total_age -= age;
                --count;
                reclaimed += segment.size;
                detach_segment(segment, released);
            }
        });
    }
    release_segments(lock, released);
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
    notify_retired();
}

[[gnu::hot]] void Pool::Impl::count_split(bool small) {
    const BlockStore::SplitFree now = store_.split_free(small);
    counters_.set_current(Counter::inactive_split, small, now.blocks);
    counters_.set_current(Counter::inactive_split_bytes, small, now.bytes);
}

}  // namespace memlab::allocator
