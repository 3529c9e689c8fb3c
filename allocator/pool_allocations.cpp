// How an allocation finds memory; the pool's public functions.
#include "allocator/pool_impl.hpp"

#include <atomic>

namespace memlab::allocator {

namespace {

/// Reserves `count` process-wide unique ids; returns the first.
std::uint64_t take_block_ids(std::uint64_t count) {
    static constinit std::atomic<std::uint64_t> last{0};
    return last.fetch_add(count, std::memory_order_relaxed) + 1;
}

/// `share` of the memory that the program may have; no_limit where that is unknown.
std::uint64_t share_of_memory(double share, const PoolOptions& options,
                              const DeviceBackend& backend) {
    const std::uint64_t total =
        options.total_memory != 0 ? options.total_memory : backend.total_memory();
    return total == 0 ? PoolOptions::no_limit
                      : static_cast<std::uint64_t>(share * static_cast<double>(total));
}

std::uint64_t garbage_limit(const PoolOptions& options, const DeviceBackend& backend) {
    return options.garbage_collection_threshold <= 0
               ? PoolOptions::no_limit
               : share_of_memory(options.garbage_collection_threshold, options, backend);
}

std::uint64_t packed_limit(const PoolOptions& options, const DeviceBackend& backend) {
    return !options.expandable || options.packed_share >= 1
               ? PoolOptions::no_limit
               : share_of_memory(options.packed_share, options, backend);
}

/// How often an allocation makes room before it is refused, where other threads free meanwhile.
constexpr unsigned max_rounds = 100;

}  // namespace

Pool::Impl::Impl(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer)
    : policy_(options),
      backend_(backend),
      observer_(observer != nullptr ? *observer : null_observer_),
      garbage_limit_(garbage_limit(options, backend)),
      packed_limit_(packed_limit(options, backend)),
      trim_delay_ns_(options.trim_after_ns),
      store_(policy_) {
    if (options.max_split_size != PoolOptions::no_limit) {
        stats_.max_split_size = static_cast<std::int64_t>(options.max_split_size);
    }
}

[[gnu::hot]] AllocResult Pool::Impl::allocate(std::uint64_t requested, Tag tag) {
    const auto plan = policy_.plan(requested);
    const Lock lock(mutex_);
    if (!plan) {
        return refuse({BackendStatus::Kind::out_of_memory, out_of_memory_code},
                      store_.largest_free());
    }
    const Fit fit = poll_pending(*plan);
    Attempt attempt = take_or_grow(*plan, requested, tag, fit);
    const auto served = [&] {
        mutex_.assert_held();
        const AllocResult result = attempt.block != nullptr ? serve(*attempt.block, requested, tag)
                                                            : refuse(attempt.status, 0);
        if (attempt.surplus.bytes != 0) [[unlikely]] {
            give_back(attempt.surplus);
            release(attempt.range);
            end_busy(growing_);  // only now: another growth may be to the same place
        }
        return result;
    };
    if (attempt.status.kind != BackendStatus::Kind::out_of_memory) {
        return served();
    }
    if (!may_fit(*plan)) {
        return refuse(attempt.status, store_.largest_free());
    }
    for (unsigned round = 1;; ++round) {
        const bool done = order_device_behind(*plan) || wait_for_all_pending();
        if (!store_.reserve()) {
            return {no_host_memory, {}, 0};
        }
        if (Block* block = take(find_fit(*plan))) {
            return serve(*block, requested, tag);
        }
        const std::uint64_t largest = store_.largest_free();
        prepare_retry(requested, tag);
        attempt = take_or_grow(*plan, requested, tag, find_fit(*plan));
        // What other threads have freed since the wait, or the release, counts as free too.
        const bool again = attempt.status.kind == BackendStatus::Kind::out_of_memory && done &&
                           round < max_rounds && has_unused() && may_fit(*plan);
        if (!again) {
            return attempt.block != nullptr ? served() : refuse(attempt.status, largest);
        }
    }
}

[[gnu::hot]] Pool::Impl::Fit Pool::Impl::find_fit(const SizePolicy::Plan& plan) const {
    Block* const block = store_.best_packed_fit(plan.size, packed_area(plan.small));
    const Area unshared = unshared_area(plan.unshared);
    if (block != nullptr || !store_.has_unshared(unshared)) {
        return {block, plan.size};
    }
    return {store_.best_unshared_fit(plan.unshared, unshared), plan.unshared};
}

/// Whether a whole free block would do, in any area. `fit`: find_fit()'s.
[[gnu::hot]] bool Pool::Impl::has_exact_fit(const SizePolicy::Plan& plan, const Fit& fit) const {
    if (fit.block == nullptr || fit.block->size == fit.size) {
        return fit.block != nullptr;
    }
    const Area unshared = unshared_area(plan.unshared);
    if (!store_.has_unshared(unshared) || !is_packed(fit.block->segment->area)) {
        return false;
    }
    const Block* const other = store_.best_unshared_fit(plan.unshared, unshared);
    return other != nullptr && other->size == plan.unshared;
}

/// Before an allocation: retires completed frees, as far as the queries are worth their cost, and
/// finds the free block. They dominate an allocation while the device is busy: 0.1 us for a pending
/// fence, 1.2 us for a complete one (H200). None is made where a block of the exact size is free.
/// For large blocks all are made, since a needless split may cost a segment later. Small segments
/// are cheap, so where a small block can be split, polling at every eighth allocation suffices.
[[gnu::hot]] Pool::Impl::Fit Pool::Impl::poll_pending(const SizePolicy::Plan& plan) {
    constexpr unsigned poll_interval = 8;
    Fit fit = find_fit(plan);
    if (has_exact_fit(plan, fit) || !any_pending()) {
        return fit;
    }
    if (plan.small) {
        if (++small_polls_skipped_ < poll_interval && fit.block != nullptr) {
            return fit;
        }
        small_polls_skipped_ = 0;
        retire_recent();
        fit = find_fit(plan);
        if (fit.block != nullptr) {
            return fit;
        }
    }
    for (Retiring at = begin_retiring(); retire_some(at);) {
        fit = find_fit(plan);
        if (has_exact_fit(plan, fit)) {
            return fit;
        }
        let_others_in();
    }
    return find_fit(plan);
}

[[gnu::hot]] Block* Pool::Impl::take(const Fit& fit) {
    return fit.block != nullptr ? &store_.take_from(*fit.block, fit.size) : nullptr;
}

bool Pool::Impl::fits(const Block& block, const SizePolicy::Plan& plan) const {
    return store_.fits(block, plan.size, packed_area(plan.small)) ||
           (packed_limit_ != PoolOptions::no_limit &&
            store_.fits(block, plan.unshared, unshared_area(plan.unshared)));
}

/// A free block, `fit` if that is one, or one from new memory. What gives memory back before that,
/// and another thread's growth, drop the lock, and another thread may free a block meanwhile: the
/// search is repeated.
[[gnu::hot]] Pool::Impl::Attempt Pool::Impl::take_or_grow(const SizePolicy::Plan& plan,
                                                          std::uint64_t requested, Tag tag,
                                                          Fit fit) {
    for (;;) {
        if (!store_.reserve()) {
            return {nullptr, no_host_memory, {}};
        }
        if (Block* block = take(fit)) {
            return {block, {}, {}};
        }
        if (!give_way(plan, requested, tag)) {
            if (!growing_) {
                return grow(plan, requested, tag);
            }
            wait_for_change();
        }
        fit = find_fit(plan);
    }
}

/// Before the pool grows: gives back what its options say. True if the lock was dropped for it.
bool Pool::Impl::give_way(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag) {
    return collect_garbage(requested, tag) ||
           (policy_.options().expandable && reclaim_pages(plan, requested, tag));
}

[[gnu::hot]] AllocResult Pool::Impl::serve(Block& block, std::uint64_t requested, Tag tag) {
    const bool small = block.segment->small();
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
    count_split(*block.segment);
    const BlockInfo info = describe(block);
    observer_.on_alloc(info, tag);
    return {{}, info, 0};
}

[[gnu::hot]] void Pool::Impl::count_split(const Segment& changed) {
    if (changed.expandable) {
        return;  // its blocks do not count
    }
    const bool small = changed.small();
    const BlockStore::SplitFree now = store_.split_free(small);
    counters_.set_current(Counter::inactive_split, small, now.blocks);
    counters_.set_current(Counter::inactive_split_bytes, small, now.bytes);
}

AllocResult Pool::Impl::refuse(BackendStatus status, std::uint64_t largest_free_block) {
    if (status.kind == BackendStatus::Kind::out_of_memory) {
        ++stats_.num_ooms;
        return {status, {}, largest_free_block};
    }
    return {status, {}, 0};
}

/// Whether anything may still go back to the device.
bool Pool::Impl::has_unused() const {
    return !pending_.empty() || any_unmapping() || store_.releasable() != 0;
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
    if (any_pending()) {
        unused = counters_.current(Counter::reserved_bytes) -
                 counters_.current(Counter::allocated_bytes);
    } else {
        // Growth in place also uses what is free beside whole chunks, on both sides.
        unused = store_.releasable() + 2 * store_.largest_remainder();
    }
    return plan.size <= unused || plan.size - unused <= available;
}

/// When memory is short: makes the oldest pending block that is large enough reusable by ordering
/// all future device work behind its fence; the host does not wait. The fences of earlier frees
/// complete earlier, so those blocks become reusable too.
bool Pool::Impl::order_device_behind(const SizePolicy::Plan& plan) {
    Block* chosen = nullptr;
    visit_in_parts(pending_, false, [&](Block& block) {
        mutex_.assert_held();
        chosen = block.waited_for || !fits(block, plan) ? nullptr : &block;
        return chosen != nullptr;
    });
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

std::uint64_t Pool::reclaimable() {
    return impl_->reclaimable();
}

std::uint64_t Pool::tick(std::uint64_t now_ns, bool* more) {
    return impl_->tick(now_ns, more);
}

std::uint64_t Pool::next_tick() const {
    return impl_->next_tick();
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

void Pool::release_some() {
    impl_->release_some();
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
