// How an allocation finds memory; the pool's public functions.
#include "allocator/pool_impl.hpp"

#include <algorithm>
#include <atomic>

namespace memlab::allocator {

namespace {

constexpr BackendStatus no_host_memory{BackendStatus::Kind::error, out_of_memory_code};

/// Reserves `count` process-wide unique ids; returns the first.
std::uint64_t take_block_ids(std::uint64_t count) {
    static constinit std::atomic<std::uint64_t> last{0};
    return last.fetch_add(count, std::memory_order_relaxed) + 1;
}

std::uint64_t garbage_limit(const PoolOptions& options, const DeviceBackend& backend) {
    if (options.garbage_collection_threshold <= 0) {
        return PoolOptions::no_limit;
    }
    const std::uint64_t total =
        options.total_memory != 0 ? options.total_memory : backend.total_memory();
    if (total == 0) {
        return PoolOptions::no_limit;
    }
    return static_cast<std::uint64_t>(options.garbage_collection_threshold *
                                      static_cast<double>(total));
}

}  // namespace

Pool::Impl::Impl(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer)
    : policy_(options),
      backend_(backend),
      observer_(observer != nullptr ? *observer : null_observer_),
      garbage_limit_(garbage_limit(options, backend)),
      trim_delay_ns_(options.trim_after_ns),
      store_(policy_) {
    if (options.max_split_size != PoolOptions::no_limit) {
        stats_.max_split_size = static_cast<std::int64_t>(options.max_split_size);
    }
}

[[gnu::hot]] AllocResult Pool::Impl::allocate(std::uint64_t requested, Tag tag) {
    const auto plan = policy_.plan(requested);
    Lock lock(mutex_);
    if (!plan) {
        return refuse({BackendStatus::Kind::out_of_memory, out_of_memory_code},
                      store_.largest_free());
    }
    poll_pending(*plan);
    Attempt attempt = take_or_grow(lock, *plan, requested, tag);
    if (attempt.status.kind != BackendStatus::Kind::out_of_memory) {
        return attempt.block != nullptr ? serve(*attempt.block, requested, tag)
                                        : refuse(attempt.status, 0);
    }
    if (!may_fit(*plan)) {
        return refuse(attempt.status, store_.largest_free());
    }
    if (!order_device_behind(*plan)) {
        wait_for_all_pending(lock);
    }
    if (!store_.reserve()) {
        return {no_host_memory, {}, 0};
    }
    if (Block* block = store_.take(plan->size, plan->small)) {
        return serve(*block, requested, tag);
    }
    const std::uint64_t largest = store_.largest_free();
    prepare_retry(lock, requested, tag);
    attempt = take_or_grow(lock, *plan, requested, tag);
    return attempt.block != nullptr ? serve(*attempt.block, requested, tag)
                                    : refuse(attempt.status, largest);
}

/// A free block, or one from new memory. Garbage collection before growing drops the lock, and
/// another thread may free a block meanwhile, so the search is repeated after it.
[[gnu::hot]] Pool::Impl::Attempt Pool::Impl::take_or_grow(Lock& lock, const SizePolicy::Plan& plan,
                                                          std::uint64_t requested, Tag tag) {
    do {
        if (!store_.reserve()) {
            return {nullptr, no_host_memory};
        }
        if (Block* block = store_.take(plan.size, plan.small)) {
            return {block, {}};
        }
    } while (collect_garbage(lock, requested, tag));
    if (policy_.options().expandable) {
        reclaim_pages(plan, requested, tag);
        if (!store_.reserve()) {
            return {nullptr, no_host_memory};
        }
        // Unmapping may have shrunk a block that was too large to be split (max_split_size).
        if (Block* block = store_.take(plan.size, plan.small)) {
            return {block, {}};
        }
    }
    Block* fresh = nullptr;
    const BackendStatus status = grow(plan, tag, &fresh);
    return {status.ok() ? &store_.take_from(*fresh, plan.size) : nullptr, status};
}

[[gnu::hot]] AllocResult Pool::Impl::serve(Block& block, std::uint64_t requested, Tag tag) {
    const bool small = block.segment->small;
    block.use.requested = requested;
    if (next_id_ == ids_end_) {  // in batches: the shared counter is contended between pools
        next_id_ = take_block_ids(id_batch);
        ids_end_ = next_id_ + id_batch;
    }
    block.use.id = next_id_++;
    counters_.increase(Counter::allocation, small, 1);
    counters_.increase(Counter::allocated_bytes, small, block.size);
    counters_.increase(Counter::active, small, 1);
    counters_.increase(Counter::active_bytes, small, block.size);
    counters_.increase(Counter::requested_bytes, small, requested);
    if (policy_.oversize(block.size)) {
        increase(stats_.oversize_allocations, 1);
    }
    count_split(small);
    const BlockInfo info = describe(block);
    observer_.on_alloc(info, tag);
    return {{}, info, 0};
}

AllocResult Pool::Impl::refuse(BackendStatus status, std::uint64_t largest_free_block) {
    if (status.kind == BackendStatus::Kind::out_of_memory) {
        ++stats_.num_ooms;
        return {status, {}, largest_free_block};
    }
    return {status, {}, 0};
}

BackendStatus Pool::Impl::grow(const SizePolicy::Plan& plan, Tag tag, Block** fresh) {
    if (policy_.options().expandable) {
        BlockStore::Growth growth = store_.best_growth(plan.size, plan.small);
        if (growth.hole != nullptr) {
            return grow_in_place(growth, tag, fresh);
        }
        if (add_range(plan)) {
            growth = store_.best_growth(plan.size, plan.small);
            const Segment& range = *growth.hole->segment;
            const BackendStatus status = grow_in_place(growth, tag, fresh);
            if (!status.ok()) {
                // No event reports a range without memory, so it must not stay.
                const Address base = range.base;
                const std::uint64_t bytes = range.size;
                store_.remove_range(base);
                backend_.range_release(base, bytes);
            }
            return status;
        }
    }
    Address base = 0;
    const auto reserved = counters_.current(Counter::reserved_bytes, plan.small);
    const auto active = counters_.current(Counter::active_bytes, plan.small);
    std::uint64_t bytes = policy_.segment_for(plan, reserved, reserved - active);
    BackendStatus status = backend_.segment_alloc(bytes, &base);
    if (status.kind == BackendStatus::Kind::out_of_memory && bytes != plan.segment) {
        bytes = plan.segment;
        status = backend_.segment_alloc(bytes, &base);
    }
    if (!status.ok()) {
        return status;
    }
    if (!store_.can_add(base, bytes)) {
        // Our map disagrees with the driver; return the segment.
        backend_.segment_free(base, bytes);
        return {BackendStatus::Kind::error, unusable_segment_code};
    }
    *fresh = &store_.add_segment(base, bytes, plan.small);
    ++stats_.num_device_alloc;
    grown_since_trim_ = trimmed_at_ns_ != never_seen;
    counters_.increase(Counter::segment, plan.small, 1);
    counters_.increase(Counter::reserved_bytes, plan.small, bytes);
    if (policy_.oversize(bytes)) {
        increase(stats_.oversize_segments, 1);
    }
    observer_.on_segment_alloc(base, bytes, tag);
    return status;
}

/// Maps pages into a range; *fresh is the free block that they extend.
BackendStatus Pool::Impl::grow_in_place(const BlockStore::Growth& growth, Tag tag, Block** fresh) {
    const BackendStatus status = backend_.pages_map(growth.begin, growth.bytes);
    if (!status.ok()) {
        return status;
    }
    // Only now: a growth that the device has no memory for may be of any size.
    if (!store_.reserve_chunks(growth)) {
        backend_.pages_unmap(growth.begin, growth.bytes);
        return no_host_memory;
    }
    const bool first = growth.hole->segment->mapped == 0;
    *fresh = &store_.map(growth);
    const bool small = (*fresh)->segment->small;
    ++stats_.num_device_alloc;
    grown_since_trim_ = trimmed_at_ns_ != never_seen;
    counters_.increase(Counter::segment, small, first ? 1 : 0);
    counters_.increase(Counter::reserved_bytes, small, growth.bytes);
    observer_.on_segment_map(growth.begin, growth.bytes, tag);
    return status;
}

/// Adds a range. After the first failure it is never tried again.
bool Pool::Impl::add_range(const SizePolicy::Plan& plan) {
    if (ranges_unavailable_) {
        return false;
    }
    const std::uint64_t bytes = policy_.range_bytes(plan.size, backend_.total_memory());
    Address base = 0;
    if (!backend_.range_reserve(&base, bytes).ok()) {
        ranges_unavailable_ = true;
        return false;
    }
    if (!store_.can_add_range(base, bytes)) {
        backend_.range_release(base, bytes);
        ranges_unavailable_ = true;
        return false;
    }
    store_.add_range(base, bytes, plan.small);
    return true;
}

/// False when the request could not be served even if all that is unused went back to the device:
/// so a size that no device has costs neither the cache nor a wait. Counts what pending frees will
/// give as unused.
bool Pool::Impl::may_fit(const SizePolicy::Plan& plan) {
    const std::uint64_t available = backend_.available_memory();
    if (available == DeviceBackend::unknown_memory) {
        return true;
    }
    std::uint64_t unused = 0;
    if (counters_.current(Counter::active) != counters_.current(Counter::allocation)) {
        unused = counters_.current(Counter::reserved_bytes) -
                 counters_.current(Counter::allocated_bytes);
    } else {
        for (const bool small : {false, true}) {
            for_each_unused(small, [&](const Segment& segment) { unused += segment.size; });
            for_each_free_pages(small,
                                [&](const BlockStore::Pages& pages) { unused += pages.bytes; });
        }
        // Growth in place also uses what is free beside whole chunks, on both sides.
        unused += 2 * store_.largest_remainder();
    }
    return plan.size <= unused || plan.size - unused <= available;
}

/// When memory is short: makes the oldest pending block that is large enough reusable by ordering
/// all future device work behind its fence; the host does not wait. The fences of earlier frees
/// complete earlier, so those blocks become reusable too.
bool Pool::Impl::order_device_behind(const SizePolicy::Plan& plan) {
    Block* chosen = pending_.oldest();
    while (chosen != nullptr &&
           (chosen->waited_for || !store_.fits(*chosen, plan.size, plan.small))) {
        chosen = chosen->use.list_next;
    }
    if (chosen == nullptr || !backend_.fence_wait_device(chosen->use.fence).ok()) {
        return false;
    }
    retire_through(*chosen);
    return true;
}

Pool::Pool(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer)
    : impl_(std::make_unique<Impl>(options, backend, observer)) {}

Pool::~Pool() = default;

[[gnu::hot]] AllocResult Pool::allocate(std::uint64_t requested, Tag tag) {
    return impl_->allocate(requested, tag);
}

[[gnu::hot]] FreeResult Pool::free(Address address, Tag tag, FenceTiming timing) {
    return impl_->free(address, tag, timing, 0);
}

FreeResult Pool::free_in(StreamId stream, Address address, Tag tag) {
    return impl_->free(address, tag, FenceTiming::now_without_wait, stream);
}

void Pool::forget_stream(StreamId stream) {
    impl_->forget_stream(stream);
}

void Pool::fence_deferred() {
    impl_->fence_deferred();
}

std::optional<BlockInfo> Pool::find(Address address) const {
    return impl_->find(address);
}

std::optional<BlockInfo> Pool::try_find(Address address, bool* busy) const {
    return impl_->try_find(address, busy);
}

bool Pool::owns(Address address) const {
    return impl_->owns(address);
}

Pool::Reach Pool::reach(Address address, std::uint64_t bytes) {
    return impl_->reach(address, bytes);
}

std::uint64_t Pool::release_cached(bool wait) {
    return impl_->release_cached(wait);
}

std::uint64_t Pool::tick(std::uint64_t now_ns) {
    return impl_->tick(now_ns);
}

void Pool::abandon() {
    impl_->abandon();
}

void Pool::forget_left_wait() {
    impl_->forget_left_wait();
}

PoolStats Pool::stats() const {
    return impl_->stats();
}

bool Pool::retire(Address address) {
    return impl_->retire(address);
}

void Pool::release_for_retry(std::uint64_t requested, Tag tag) {
    impl_->release_for_retry(requested, tag);
}

void Pool::reclaim(std::uint64_t requested, Tag tag) {
    impl_->reclaim(requested, tag);
}

std::string Pool::validate() const {
    return impl_->validate();
}

}  // namespace memlab::allocator
