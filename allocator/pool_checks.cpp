// Questions about the pool's memory, and the check of its invariants.
#include <algorithm>

#include "allocator/pool_impl.hpp"

namespace memlab::allocator {

namespace {

std::string compare_stat(const char* name, const Stat& stat, const Stat& truth) {
    if (stat.current != truth.current) {
        return std::string(name) + " is " + std::to_string(truth.current) +
               ", the statistics say " + std::to_string(stat.current);
    }
    if (stat.current != stat.allocated - stat.freed || stat.peak < stat.current) {
        return std::string(name) + ": current, peak and sums disagree";
    }
    return {};
}

}  // namespace

std::optional<BlockInfo> Pool::Impl::find(Address address) const {
    const Lock lock(mutex_);
    return find_locked(address);
}

std::optional<BlockInfo> Pool::Impl::try_find(Address address, bool* busy) const {
    *busy = true;
    if (!mutex_.try_lock()) {
        return std::nullopt;
    }
    *busy = false;
    const Lock lock(mutex_, std::adopt_lock);
    return find_locked(address);
}

std::optional<BlockInfo> Pool::Impl::find_locked(Address address) const {
    const Block* block = store_.find(address);
    if (block == nullptr || block->state != BlockState::live) {
        return std::nullopt;
    }
    return describe(*block);
}

bool Pool::Impl::owns(Address address) const {
    const Lock lock(mutex_);
    return store_.find(address) != nullptr;
}

Pool::Reach Pool::Impl::reach(Address address, std::uint64_t bytes) {
    const Lock lock(mutex_);
    Block* block = store_.find(address);
    if (block == nullptr) {
        return Reach::not_ours;
    }
    const std::uint64_t offset = address - block->address;
    const bool within = offset < block->size && bytes <= block->size - offset;
    switch (block->state) {
        case BlockState::live:
            return offset < block->use.requested && bytes <= block->use.requested - offset
                       ? Reach::inside
                       : Reach::outside;
        case BlockState::pending:
            // A stream-ordered free: accessible until the stream reaches it.
            return within && block->list != 0 && !block->waited_for &&
                           backend_.fence_query(block->use.fence) == FenceState::pending
                       ? Reach::inside
                       : Reach::outside;
        case BlockState::deferred:
            return within ? Reach::inside : Reach::outside;
        case BlockState::quarantined:
        case BlockState::free:
        case BlockState::unmapped:
            break;
    }
    return Reach::outside;
}

std::uint64_t Pool::Impl::reclaimable() {
    constexpr unsigned most_tries = 4;
    const Lock lock(mutex_);
    retire_completed();
    // Where something changed while others had their turn, some may be counted twice or not at all.
    for (unsigned tries = 1; tries < most_tries; ++tries) {
        const std::uint64_t before = changes();
        const std::uint64_t bytes = count_reclaimable(false);
        if (changes() == before) {
            return bytes;
        }
    }
    return count_reclaimable(true);
}

/// How often something changed that reclaimable() depends on.
std::uint64_t Pool::Impl::changes() const {
    const Stat active = counters_.stat(Counter::active).all;
    return static_cast<std::uint64_t>(active.allocated + active.freed + stats_.num_device_alloc +
                                      stats_.num_device_free) +
           fences_recorded_ + frees_deferred_ + gone_back_;
}

std::uint64_t Pool::Impl::count_reclaimable(bool keep_lock) {
    const auto freed = [](const Block& block) {
        return block.state == BlockState::deferred ||
               (block.state == BlockState::pending && block.list == 0);
    };
    std::uint64_t bytes = store_.releasable();
    for (const BlockList* list : {&pending_, &deferred_}) {
        visit_in_parts(*list, keep_lock, [&](Block& block) {
            mutex_.assert_held();
            bytes += store_.releasable_with(block, freed);
            return false;
        });
    }
    for (const Unmapping& unmapping : unmappings_) {
        bytes += unmapping.in_use ? unmapping.segment_bytes : 0;
        for (unsigned i = 0; unmapping.in_use && i < unmapping.count; ++i) {
            bytes += unmapping.places[i].bytes;
        }
    }
    return bytes;
}

PoolStats Pool::Impl::stats() const {
    const Lock lock(mutex_);
    PoolStats stats;
    static_cast<WholePoolStats&>(stats) = stats_;
    for (std::size_t i = 0; i < counted_stats.size(); ++i) {
        stats.*counted_stats[i].stat = counters_.stat(static_cast<Counter>(i));
    }
    stats.largest_free = static_cast<std::int64_t>(store_.largest_free());
    return stats;
}

std::string Pool::Impl::validate_frees() const {
    std::size_t listed = 0;
    const Block* previous = nullptr;
    for (std::uint32_t list = 0; list <= streams_.size(); ++list) {
        const BlockList& blocks = list == 0 ? pending_ : streams_[list - 1].blocks;
        previous = nullptr;
        for (const Block* block = blocks.oldest(); block != nullptr; block = block->use.list_next) {
            if (block->state != BlockState::pending || block->use.fence == 0 ||
                block->list != list) {
                return "a block in a pending list has no fence or belongs in another";
            }
            if (block->use.list_previous != previous ||
                (previous != nullptr && previous->use.order >= block->use.order)) {
                return "a pending list is out of order";
            }
            previous = block;
            ++listed;
        }
        if (previous != blocks.newest()) {
            return "a pending list does not end with its newest block";
        }
    }
    previous = nullptr;
    for (const Block* block = deferred_.oldest(); block != nullptr; block = block->use.list_next) {
        if (block->state != BlockState::deferred || block->use.fence != 0) {
            return "a block in the deferred list has a fence";
        }
        if (block->use.list_previous != previous) {
            return "the deferred list is linked wrongly";
        }
        previous = block;
        ++listed;
    }
    if (previous != deferred_.newest()) {
        return "the deferred list does not end with its newest block";
    }
    const char* problem = "";
    store_.for_each_block([&](const Block& block) {
        const bool used = block.state != BlockState::free && block.state != BlockState::unmapped;
        if (block.state == BlockState::pending || block.state == BlockState::deferred) {
            --listed;
        } else if ((used && block.use.fence != 0) || block.waited_for) {
            problem = "a block that is not pending has a fence or is waited for";
        }
    });
    if (listed != 0) {
        problem = "the lists of frees do not match the freed blocks";
    }
    return problem;
}

std::string Pool::Impl::validate_stats() const {
    StatCounters counters;
    WholePoolStats counted;
    for (const auto& [base, segment] : store_.segments()) {
        counters.increase(Counter::segment, segment.small(), segment.mapped != 0 ? 1 : 0);
        counters.increase(Counter::reserved_bytes, segment.small(), segment.mapped);
        if (!segment.expandable && policy_.oversize(segment.size)) {
            increase(counted.oversize_segments, 1);
        }
    }
    store_.for_each_block([&](const Block& block) {
        const bool small = block.segment->small();
        if (block.state == BlockState::unmapped) {
            return;
        }
        if (block.state == BlockState::free) {
            if (!block.segment->expandable && block.segment->blocks > 1) {
                counters.increase(Counter::inactive_split, small, 1);
                counters.increase(Counter::inactive_split_bytes, small, block.size);
            }
            return;
        }
        counters.increase(Counter::active, small, 1);
        counters.increase(Counter::active_bytes, small, block.size);
        counters.increase(Counter::requested_bytes, small, block.use.requested);
        if (block.state == BlockState::live) {
            counters.increase(Counter::allocation, small, 1);
            counters.increase(Counter::allocated_bytes, small, block.size);
            if (policy_.oversize(block.size)) {
                increase(counted.oversize_allocations, 1);
            }
        }
    });
    for (std::size_t i = 0; i < counted_stats.size(); ++i) {
        const StatByPool told = counters_.stat(static_cast<Counter>(i));
        const StatByPool truth = counters.stat(static_cast<Counter>(i));
        for (Stat StatByPool::*part :
             {&StatByPool::all, &StatByPool::small_pool, &StatByPool::large_pool}) {
            if (std::string problem = compare_stat(counted_stats[i].name, told.*part, truth.*part);
                !problem.empty()) {
                return problem;
            }
        }
    }
    if (std::string problem = compare_stat("oversize_allocations", stats_.oversize_allocations,
                                           counted.oversize_allocations);
        !problem.empty()) {
        return problem;
    }
    return compare_stat("oversize_segments", stats_.oversize_segments, counted.oversize_segments);
}

/// Whether a tick that returns early misses nothing.
std::string Pool::Impl::validate_trim() const {
    const BlockStore::Idle& idle = store_.idle();
    const std::uint64_t next = std::min(next_trim_ns_, due_at(idle.oldest_ns));
    bool known = true;
    const auto check = [&](std::uint64_t idle_since_ns) {
        mutex_.assert_held();
        known = known &&
                (idle.unseen || (idle_since_ns != never_seen && due_at(idle_since_ns) >= next));
    };
    for (const Area area : {Area::large, Area::small}) {
        for (const Segment* each = store_.oldest_segment(area); each != nullptr;
             each = each->unused_links.right) {
            check(each->idle_since_ns);
        }
        store_.find_pages(area, 0, 0, [&](const Block& block) {
            check(block.idle.since_ns);
            return false;
        });
    }
    for (const Area area : {Area::own_chunks, Area::own_page}) {
        for (const Block* block = store_.oldest(area); block != nullptr;
             block = block->idle.age_links.right) {
            check(block->idle.since_ns);
        }
    }
    return known || trim_delay_ns_ == 0 ? "" : "a tick would overlook memory that is unused";
}

std::string Pool::Impl::validate() const {
    const Lock lock(mutex_);
    if (std::string problem = store_.validate(); !problem.empty()) {
        return problem;
    }
    if (std::string problem = validate_frees(); !problem.empty()) {
        return problem;
    }
    if (std::string problem = validate_trim(); !problem.empty()) {
        return problem;
    }
    return validate_stats();
}

}  // namespace memlab::allocator
