// How the pool grows: what it would ask the device for, and how that becomes the pool's.
#include "allocator/pool_impl.hpp"

namespace memlab::allocator {

namespace {

/// Before a growth is made with the lock held: how often its memory may have come too late.
constexpr unsigned max_surpluses = 3;

}  // namespace

/// In the packed area while that may grow so far, else without sharing.
Pool::Impl::GrowthPlan Pool::Impl::plan_growth(const SizePolicy::Plan& plan) const {
    const auto in = [&](Area area, std::uint64_t size) {
        mutex_.assert_held();
        const BlockStore::Growth at = store_.best_growth(size, area);
        return GrowthPlan{at, area, size, at.hole != nullptr ? at.bytes : whole_pages(size)};
    };
    const GrowthPlan packed = in(packed_area(plan.small), plan.size);
    if (packed_limit_ == PoolOptions::no_limit ||
        (packed.bytes <= packed_limit_ && store_.packed_bytes() <= packed_limit_ - packed.bytes)) {
        return packed;
    }
    return in(unshared_area(plan.unshared), plan.unshared);
}

Pool::Impl::Attempt Pool::Impl::grow(const SizePolicy::Plan& plan, std::uint64_t requested,
                                     Tag tag) {
    begin_busy(growing_);
    Fresh range;
    Attempt attempt = grow_in_turn(plan, requested, tag, &range);
    remove_if_empty(range);
    if (attempt.surplus.bytes != 0) {
        attempt.range = range;
        return attempt;
    }
    if (attempt.block == nullptr) {
        release(range);
    } else if (range.bytes != 0) {  // rare, and the block is not served yet
        backend_.range_release(range.begin, range.bytes);
    }
    end_busy(growing_);
    return attempt;
}

/// Removes a range that was added for a growth and has no memory, and leaves its addresses to be
/// released: no event reports it, so it must not stay. Else clears it.
void Pool::Impl::remove_if_empty(Fresh& range) {
    const Block* const hole = range.bytes != 0 ? store_.find(range.begin) : nullptr;
    if (hole != nullptr && hole->segment->base == range.begin && hole->segment->mapped == 0) {
        store_.remove_range(range.begin);
    } else {
        range = {};
    }
}

/// Releases the addresses of a removed range.
void Pool::Impl::release(const Fresh& range) {
    if (range.bytes != 0) {
        without_lock(false, [&] { backend_.range_release(range.begin, range.bytes); });
    }
}

/// The only thread that grows. *range: one that it added.
Pool::Impl::Attempt Pool::Impl::grow_in_turn(const SizePolicy::Plan& plan, std::uint64_t requested,
                                             Tag tag, Fresh* range) {
    Fresh fresh;
    unsigned surpluses = 0;
    for (;;) {
        const GrowthPlan growth = plan_growth(plan);
        if (fresh.bytes != 0) {
            if (is_wanted(plan, growth, fresh)) {
                const Attempt adopted = adopt(plan, growth, fresh, tag);
                give_back(fresh);
                return adopted;
            }
            give_back(fresh);
            fresh = {};
            ++surpluses;
        } else if (growth.at.hole != nullptr && is_unmapping(growth.at.begin, growth.bytes)) {
            wait_for_change();
        } else if (policy_.options().expandable && growth.at.hole == nullptr &&
                   !ranges_unavailable_) {
            remove_if_empty(*range);
            release(*range);
            range->bytes = policy_.range_bytes(growth.size, backend_.total_memory());
            BackendStatus status;
            const bool same = without_lock(surpluses >= max_surpluses, [&] {
                status = backend_.range_reserve(&range->begin, range->bytes);
            });
            if (!status.ok() || !same || !store_.reserve() ||
                !store_.can_add_range(range->begin, range->bytes)) {
                ranges_unavailable_ = same;
                if (status.ok() && same) {  // what an ended context had is gone
                    without_lock(false,
                                 [&] { backend_.range_release(range->begin, range->bytes); });
                }
                *range = {};
            } else {
                store_.add_range(range->begin, range->bytes, growth.area);
            }
        } else {
            const std::uint64_t before = gone_back_;
            const BackendStatus status = obtain(plan, growth, surpluses >= max_surpluses, &fresh);
            if (!status.ok() && (status.kind != BackendStatus::Kind::out_of_memory ||
                                 (gone_back_ == before && !any_unmapping()))) {
                return {nullptr, status, {}};
            }
            if (!status.ok() && gone_back_ == before) {
                wait_for_change();  // that memory is not the device's yet
            }
        }
        // The lock was dropped: what the pool would do now is all that counts.
        do {
            if (!store_.reserve()) {
                give_back(fresh);
                return {nullptr, no_host_memory, {}};
            }
            if (Block* block = take(find_fit(plan))) {
                return {block, {}, fresh};
            }
        } while (give_way(plan, requested, tag));
    }
}

/// The memory for a growth from the device.
BackendStatus Pool::Impl::obtain(const SizePolicy::Plan& plan, const GrowthPlan& growth,
                                 bool keep_lock, Fresh* fresh) {
    BackendStatus status;
    bool same = false;
    if (growth.at.hole != nullptr) {
        *fresh = {growth.at.begin, growth.bytes, true};
        const std::uint64_t chunk = BlockStore::chunk_of(growth.at);
        same = without_lock(
            keep_lock, [&] { status = backend_.pages_map(fresh->begin, fresh->bytes, chunk); });
    } else {
        fresh->bytes = segment_bytes(plan);
        same = without_lock(keep_lock, [&] {
            status = backend_.segment_alloc(fresh->bytes, &fresh->begin);
            if (status.kind == BackendStatus::Kind::out_of_memory && fresh->bytes != plan.segment) {
                fresh->bytes = plan.segment;
                status = backend_.segment_alloc(fresh->bytes, &fresh->begin);
            }
        });
    }
    if (!status.ok() || !same) {  // what an ended context had is gone
        *fresh = {};
    }
    return status;
}

std::uint64_t Pool::Impl::segment_bytes(const SizePolicy::Plan& plan) const {
    const auto reserved = counters_.current(Counter::reserved_bytes, plan.small);
    const auto active = counters_.current(Counter::active_bytes, plan.small);
    return policy_.segment_for(plan, reserved, reserved - active);
}

/// Whether this memory is what the pool would ask for now.
bool Pool::Impl::is_wanted(const SizePolicy::Plan& plan, const GrowthPlan& growth,
                           const Fresh& fresh) const {
    if (growth.at.hole != nullptr) {
        return fresh.mapped && fresh.begin == growth.at.begin && fresh.bytes == growth.bytes;
    }
    // The plan's own size is the one to which a larger one falls back.
    return !fresh.mapped && (fresh.bytes == plan.segment || fresh.bytes == segment_bytes(plan));
}

/// Makes it the pool's, and takes the block from it. What remains in `fresh` was not usable.
Pool::Impl::Attempt Pool::Impl::adopt(const SizePolicy::Plan& plan, const GrowthPlan& growth,
                                      Fresh& fresh, Tag tag) {
    const bool small = fresh.mapped ? is_small(growth.area) : plan.small;
    const std::uint64_t size = fresh.mapped ? growth.size : plan.size;
    Block* block = nullptr;
    if (fresh.mapped) {
        // Only now: a growth that the device has no memory for may be of any size.
        if (!store_.reserve_chunks(growth.at)) {
            return {nullptr, no_host_memory, {}};
        }
        const bool first = growth.at.hole->segment->mapped == 0;
        block = &store_.map(growth.at);
        counters_.increase(Counter::segment, small, first ? 1 : 0);
        observer_.on_segment_map(fresh.begin, fresh.bytes, tag);
    } else {
        if (!store_.can_add(fresh.begin, fresh.bytes)) {
            // Our map disagrees with the driver.
            return {nullptr, {BackendStatus::Kind::error, unusable_segment_code}, {}};
        }
        block = &store_.add_segment(fresh.begin, fresh.bytes, packed_area(plan.small));
        counters_.increase(Counter::segment, small, 1);
        if (policy_.oversize(fresh.bytes)) {
            increase(stats_.oversize_segments, 1);
        }
        observer_.on_segment_alloc(fresh.begin, fresh.bytes, tag);
    }
    ++stats_.num_device_alloc;
    grown_since_trim_ = trimmed_at_ns_ != never_seen;
    counters_.increase(Counter::reserved_bytes, small, fresh.bytes);
    fresh = {};
    return {&store_.take_from(*block, size), {}, {}};
}

/// Returns memory that did not become the pool's.
void Pool::Impl::give_back(const Fresh& fresh) {
    if (fresh.bytes == 0) {
        return;
    }
    without_lock(false, [&] {
        if (fresh.mapped) {
            backend_.pages_unmap(fresh.begin, fresh.bytes);
        } else {
            backend_.segment_free(fresh.begin, fresh.bytes);
        }
    });
}

}  // namespace memlab::allocator
