// What goes back to the device by age.
#include <algorithm>

#include "allocator/pool_impl.hpp"

namespace memlab::allocator {

/// When what a tick first saw idle at this time is given back; never_seen if it saw none.
std::uint64_t Pool::Impl::due_at(std::uint64_t idle_since_ns) const {
    return idle_since_ns + std::min(trim_delay_ns_, never_seen - idle_since_ns);
}

/// Before the first effect of a tick.
void Pool::Impl::begin_trim(std::uint64_t now_ns) {
    observer_.on_tick(now_ns);
    if (grown_since_trim_) {
        if (now_ns - trimmed_at_ns_ <= PoolOptions::regrown_within_ns) {
            trim_delay_ns_ += std::min(trim_delay_ns_, never_seen - trim_delay_ns_);
        }
        trimmed_at_ns_ = never_seen;
        grown_since_trim_ = false;
    }
}

std::uint64_t Pool::Impl::tick(std::uint64_t now_ns, bool* more) {
    constexpr unsigned max_seen = 8192;
    bool ignored = false;
    bool& left = more != nullptr ? *more : ignored;
    left = false;
    const Lock lock(mutex_);
    if (trim_delay_ns_ == 0) {
        return 0;
    }
    retire_completed();
    // Nothing has to be looked at unless something became idle or is due: a program may have many
    // free blocks, and the replay of one ticks at each allocation.
    const BlockStore::Idle idle = store_.take_idle();
    next_trim_ns_ = std::min(next_trim_ns_, due_at(idle.oldest_ns));
    if (!grown_since_trim_ && !idle.unseen && now_ns < next_trim_ns_) {
        return 0;
    }
    Unmapping* const unmapping = free_unmapping();
    if (unmapping == nullptr) {  // others give back
        store_.put_back(idle);
        return 0;
    }
    bool changed = false;
    const auto begin = [&] {
        mutex_.assert_held();
        if (!changed) {
            changed = true;
            begin_trim(now_ns);
        }
    };
    if (grown_since_trim_) {
        begin();
    }
    next_trim_ns_ = never_seen;
    // Whether the idle time has reached the limit.
    const auto expired = [&](std::uint64_t idle_since_ns) {
        mutex_.assert_held();
        next_trim_ns_ = std::min(next_trim_ns_, due_at(idle_since_ns));
        if (now_ns < idle_since_ns || now_ns - idle_since_ns < trim_delay_ns_) {
            return false;
        }
        begin();
        return true;
    };
    // Starts it for what no tick has seen.
    unsigned seen = 0;
    const auto see = [&](const auto& oldest_unseen) {
        mutex_.assert_held();
        while (auto* const unseen = oldest_unseen()) {
            begin();
            if (seen++ == max_seen) {
                left = true;
                return;
            }
            store_.saw(*unseen, now_ns);
        }
    };
    ReleasedSegments released;
    std::uint64_t taken = 0;
    bool unmapped = false;
    const auto unmap_if_allowed = [&](const BlockStore::Pages& pages) {
        mutex_.assert_held();
        left = left || !may_unmap_more(*unmapping, &taken);
        unmapped = (!left && unmap(*unmapping, pages)) || unmapped;
        return !left;
    };
    for (const Area area : {Area::large, Area::small}) {
        see([&] {
            mutex_.assert_held();
            return store_.oldest_unseen_segment(area);
        });
        const bool all = detach_unused(area, *unmapping, released, [&](const Segment& segment) {
            return expired(segment.idle_since_ns);
        });
        left = left || !all;
        const auto page_expired = [&](Block& block) {
            if (block.idle.since_ns != never_seen) {
                return expired(block.idle.since_ns);
            }
            begin();
            block.idle.since_ns = now_ns;
            return false;
        };
        unmap_free_pages(area, page_expired, unmap_if_allowed);
    }
    for (const Area area : {Area::own_chunks, Area::own_page}) {
        see([&] {
            mutex_.assert_held();
            return store_.oldest_unseen(area);
        });
        while (Block* block = store_.oldest(area)) {
            if (!expired(block->idle.since_ns) ||
                !unmap_if_allowed({block, block->address, block->size})) {
                break;
            }
        }
    }
    if (changed) {
        next_trim_ns_ = 0;  // the next tick looks at what this one leaves
    }
    if (left) {
        store_.put_back({true, never_seen});
    }
    if (policy_.options().trim_backoff && (unmapped || !released.empty())) {
        trimmed_at_ns_ = now_ns;
    }
    taken += unmap_now(*unmapping);
    taken += release_segments(*unmapping, released);
    end_unmapping(*unmapping);
    return taken;
}

std::uint64_t Pool::Impl::next_tick() const {
    const Lock lock(mutex_);
    if (trim_delay_ns_ == 0) {
        return Pool::no_tick;
    }
    if (!pending_.empty() || !deferred_.empty() || store_.idle().unseen ||
        std::any_of(streams_.begin(), streams_.end(),
                    [](const StreamFrees& frees) { return !frees.blocks.empty(); })) {
        return 0;
    }
    return std::min(next_trim_ns_, due_at(store_.idle().oldest_ns));
}

}  // namespace memlab::allocator
