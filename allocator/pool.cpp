// The two state machines of the pool: how an allocation finds memory, and how a freed block becomes
// reusable. BlockStore does the placement, SizePolicy the sizes.
//
// Waiting without the lock: a thread that waits on the host for a block's fence marks the block
// `waited_for`, and from then on only that thread retires it, so block and fence stay valid without
// reference counts. Other threads that need the block wait for that thread (retired_), which is
// equivalent to waiting for the fence. abandon() may drop everything during the wait; a changed
// epoch_ shows it. forget_left_wait() leaves the block to all when its thread jumped out of the
// wait.
#include "allocator/pool.hpp"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <vector>

#include "allocator/block_list.hpp"
#include "allocator/block_store.hpp"
#include "allocator/size_policy.hpp"
#include "allocator/stat_counter.hpp"

namespace memlab::allocator {

namespace {

constexpr BackendStatus no_host_memory{BackendStatus::Kind::error, out_of_memory_code};

/// The block for which the calling thread waits without the lock of `pool`; null: none.
struct WaitHere {
    const void* pool;
    Block* block;
    std::uint64_t epoch;
};
__attribute__((tls_model("initial-exec"))) constinit thread_local WaitHere waiting_here{};

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

BlockInfo describe(const Block& block) {
    return {block.address,       block.use.requested, block.size,
            block.segment->base, block.segment->size, block.use.id};
}

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

class NullObserver final : public PoolObserver {
  public:
    void on_alloc(const BlockInfo&, Tag) override {}
    void on_free_requested(const BlockInfo&, Tag) override {}
    void on_free_completed(const BlockInfo&) override {}
    void on_segment_alloc(Address, std::uint64_t, Tag) override {}
    void on_segment_free(Address, std::uint64_t) override {}
    void on_segment_map(Address, std::uint64_t, Tag) override {}
    void on_segment_unmap(Address, std::uint64_t) override {}
    void on_alloc_retry(std::uint64_t, Tag) override {}
    void on_reclaim(std::uint64_t, Tag) override {}
    void on_empty_cache() override {}
    void on_tick(std::uint64_t) override {}
    void on_sync() override {}
};

}  // namespace

class Pool::Impl {
  public:
    Impl(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer)
        : policy_(options),
          backend_(backend),
          observer_(observer != nullptr ? *observer : null_observer_),
          store_(policy_),
          garbage_limit_(garbage_limit(options, backend)),
          trim_delay_ns_(options.trim_after_ns) {
        if (options.max_split_size != PoolOptions::no_limit) {
            stats_.max_split_size = static_cast<std::int64_t>(options.max_split_size);
        }
    }

    AllocResult allocate(std::uint64_t requested, Tag tag);
    FreeResult free(Address address, Tag tag, FenceTiming timing, StreamId stream);
    void forget_stream(StreamId stream);
    void fence_deferred();
    std::optional<BlockInfo> find(Address address) const;
    std::optional<BlockInfo> try_find(Address address, bool* busy) const;
    bool owns(Address address) const;
    Reach reach(Address address, std::uint64_t bytes);
    std::uint64_t release_cached(bool wait);
    std::uint64_t tick(std::uint64_t now_ns);
    void abandon();
    void forget_left_wait();
    PoolStats stats() const;
    bool retire(Address address);
    void release_for_retry(std::uint64_t requested, Tag tag);
    void reclaim(std::uint64_t requested, Tag tag);
    std::string validate() const;

  private:
    using Lock = std::unique_lock<std::mutex>;

    AllocResult serve(Block& block, std::uint64_t requested, Tag tag);
    AllocResult refuse(BackendStatus status, std::uint64_t largest_free_block);
    struct Attempt {
        Block* block = nullptr;
        BackendStatus status;
    };
    Attempt take_or_grow(Lock& lock, const SizePolicy::Plan& plan, std::uint64_t requested,
                         Tag tag);
    BackendStatus grow(const SizePolicy::Plan& plan, Tag tag, Block** fresh);
    BackendStatus grow_in_place(const BlockStore::Growth& growth, Tag tag, Block** fresh);
    bool add_range(const SizePolicy::Plan& plan);
    bool may_fit(const SizePolicy::Plan& plan);
    bool order_device_behind(const SizePolicy::Plan& plan);

    /// Stream-ordered frees that are pending behind one stream's work.
    struct StreamFrees {
        StreamId stream;
        BlockList blocks;
    };

    std::optional<BlockInfo> find_locked(Address address) const;
    Block* find_live(Address address, FreeResult::Kind* why_not);
    FreeResult defer(Block& block, Tag tag, BackendStatus status);
    void count_free(const Block& block);
    std::uint32_t stream_list(StreamId stream);
    BlockList& pending_list(const Block& block) {
        return block.list == 0 ? pending_ : streams_[block.list - 1].blocks;
    }
    void enqueue_pending(Block& block, Fence fence, std::uint32_t list);
    void retire(Block& block, FenceState state);
    bool frees_immediately(FreeSync sync) const;
    bool host_may_continue(Lock& lock, Block& block);
    std::uint64_t begin_wait(Lock& lock, Block& block);
    bool end_wait(Lock& lock, Block& block, std::uint64_t epoch);
    void complete(Block& block);
    void free_block(Block& block);
    void poll_pending(const SizePolicy::Plan& plan);
    void retire_recent();
    void retire_completed();  // in all lists
    void retire_completed(const BlockList& list);
    static Block* oldest_unwaited(const BlockList& list);
    void retire_through(const Block& last);
    struct HostWait {
        BackendStatus status;
        bool retired = false;
    };
    HostWait wait_for(Lock& lock, Block& block);
    void wait_for_all_pending(Lock& lock);
    void wait_for_all_deferred(Lock& lock);

    void prepare_retry(Lock& lock, std::uint64_t requested, Tag tag);
    std::uint64_t release_unused(Lock& lock);
    bool collect_garbage(Lock& lock, std::uint64_t requested, Tag tag);
    void detach_segment(const Segment& segment, ReleasedSegments& released);
    std::uint64_t release_segments(Lock& lock, const ReleasedSegments& released);
    /// Calls visit(Segment&) for each unused segment, by (size, address); it may detach that one.
    template <typename Visit>
    void for_each_unused(bool small, Visit visit) {
        std::uint64_t size = 0;
        Address base = 0;
        while (Segment* found = store_.unused_segment(small, size, base)) {
            size = found->size;
            base = found->base;
            visit(*found);
        }
    }
    /// Calls visit(const BlockStore::Pages&) for the whole pages of each free block in a range, by
    /// (capacity, address); it may unmap those.
    template <typename Visit>
    void for_each_free_pages(bool small, Visit visit) {
        std::uint64_t capacity = 0;
        Address address = 0;
        for (;;) {
            const BlockStore::Pages pages = store_.free_pages(small, capacity, address);
            if (pages.bytes == 0) {
                return;
            }
            capacity = store_.capacity(*pages.block);
            address = pages.block->address;
            visit(pages);
        }
    }
    std::uint64_t unmap(Block& block, Address begin, std::uint64_t bytes);
    void reclaim_pages(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag);
    void count_split(bool small);
    std::string validate_frees() const;
    std::string validate_stats() const;

    const SizePolicy policy_;
    DeviceBackend& backend_;
    NullObserver null_observer_;
    PoolObserver& observer_;

    mutable std::mutex mutex_;
    std::condition_variable retired_;  ///< signalled when a thread no longer waits for a block
    BlockStore store_;
    BlockList pending_;  ///< behind all work, in the order in which the fences were recorded
    std::vector<StreamFrees> streams_;  ///< the same per stream; entries are never erased
    BlockList deferred_;                ///< no fence yet, in the order of the frees
    PoolStats stats_;
    std::uint64_t fences_recorded_ = 0;
    std::uint64_t frees_deferred_ = 0;
    std::size_t last_pending_count_ = 0;  ///< size of pending_ after the last poll
    unsigned small_polls_skipped_ = 0;    ///< small allocations that skipped polling since then
    const std::uint64_t garbage_limit_;   ///< collect_garbage() keeps reserved_bytes below this
    std::uint64_t trim_delay_ns_;
    std::uint64_t trimmed_at_ns_ = never_seen;  ///< the last tick that freed memory
    bool grown_since_trim_ = false;
    bool ranges_unavailable_ = false;
    static constexpr std::uint64_t id_batch = 1024;
    std::uint64_t next_id_ = 0;
    std::uint64_t ids_end_ = 0;
    std::uint64_t epoch_ = 0;  ///< number of abandon() calls
};

// --- allocation -------------------------------------------------------------------------------

[[gnu::hot]] AllocResult Pool::Impl::allocate(std::uint64_t requested, Tag tag) {
    Lock lock(mutex_);
    const auto plan = policy_.plan(requested);
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
    increase(stats_.allocation, small, 1);
    increase(stats_.allocated_bytes, small, block.size);
    increase(stats_.active, small, 1);
    increase(stats_.active_bytes, small, block.size);
    increase(stats_.requested_bytes, small, requested);
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
    const auto reserved = static_cast<std::uint64_t>(stats_.reserved_bytes.of(plan.small).current);
    const auto active = static_cast<std::uint64_t>(stats_.active_bytes.of(plan.small).current);
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
    increase(stats_.segment, plan.small, 1);
    increase(stats_.reserved_bytes, plan.small, bytes);
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
    const bool first = growth.hole->segment->mapped == 0;
    *fresh = &store_.map(growth);
    const bool small = (*fresh)->segment->small;
    ++stats_.num_device_alloc;
    grown_since_trim_ = trimmed_at_ns_ != never_seen;
    increase(stats_.segment, small, first ? 1 : 0);
    increase(stats_.reserved_bytes, small, growth.bytes);
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
    if (stats_.active.all.current != stats_.allocation.all.current) {
        unused = static_cast<std::uint64_t>(stats_.reserved_bytes.all.current -
                                            stats_.allocated_bytes.all.current);
    } else {
        for (const bool small : {false, true}) {
            for_each_unused(small, [&](const Segment& segment) { unused += segment.size; });
            for_each_free_pages(small,
                                [&](const BlockStore::Pages& pages) { unused += pages.bytes; });
        }
        unused += 2 * page_bytes;  // growth in place also uses what is free beside whole pages
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

// --- frees ------------------------------------------------------------------------------------

/// The live block that begins at `address`; null with the reason when there is none.
[[gnu::hot]] Block* Pool::Impl::find_live(Address address, FreeResult::Kind* why_not) {
    Block* block = store_.find(address);
    if (block == nullptr) {
        *why_not = FreeResult::Kind::not_ours;
        return nullptr;
    }
    if (block->address != address || block->state != BlockState::live) {
        *why_not = FreeResult::Kind::invalid;
        return nullptr;
    }
    return block;
}

[[gnu::hot]] void Pool::Impl::count_free(const Block& block) {
    decrease(stats_.allocation, block.segment->small, 1);
    decrease(stats_.allocated_bytes, block.segment->small, block.size);
    if (policy_.oversize(block.size)) {
        decrease(stats_.oversize_allocations, 1);
    }
}

/// Frees the block; its fence is recorded later.
FreeResult Pool::Impl::defer(Block& block, Tag tag, BackendStatus status) {
    count_free(block);
    observer_.on_free_requested(describe(block), tag);
    block.state = BlockState::deferred;
    block.use.order = frees_deferred_++;
    deferred_.push_back(block);
    return {FreeResult::Kind::freed, status};
}

/// Behind the work of `stream`, or, when that is 0, behind all work.
[[gnu::hot]] FreeResult Pool::Impl::free(Address address, Tag tag, FenceTiming timing,
                                         StreamId stream) {
    Lock lock(mutex_);
    FreeResult::Kind why_not{};
    Block* block = find_live(address, &why_not);
    if (block == nullptr) {
        return {why_not, {}};
    }
    if (timing == FenceTiming::deferred) {
        return defer(*block, tag, {});
    }
    const std::uint32_t list = stream != 0 ? stream_list(stream) : 0;
    Fence fence = 0;
    bool stream_only = list != 0;
    const BackendStatus status = stream_only
                                     ? backend_.fence_record_in(stream, &fence, &stream_only)
                                     : backend_.fence_record(&fence);
    if (!status.ok()) {
        return status.kind == BackendStatus::Kind::not_now
                   ? defer(*block, tag, status)
                   : FreeResult{FreeResult::Kind::refused, status};
    }
    count_free(*block);
    const FreeSync sync =
        timing == FenceTiming::now ? policy_.options().free_sync : FreeSync::never;
    if (fence == 0 || (stream == 0 && frees_immediately(sync) && backend_.ordered_behind(fence))) {
        if (fence != 0) {
            backend_.fence_release(fence);
        }
        observer_.on_freed(describe(*block), tag);
        free_block(*block);
        return {FreeResult::Kind::freed, {}};
    }
    observer_.on_free_requested(describe(*block), tag);
    enqueue_pending(*block, fence, stream_only ? list : 0);
    if (backend_.fence_needs_host_wait(fence)) {
        return {FreeResult::Kind::freed, wait_for(lock, *block).status};
    }
    if (stream != 0) {
        return {FreeResult::Kind::freed, {}};
    }
    // While the device is busy a query costs more than recording the fence, so there is none where
    // nothing depends on it; the next allocation that needs the memory polls.
    const std::uint64_t epoch = epoch_;
    if (sync == FreeSync::never ||
        (sync == FreeSync::automatic && host_may_continue(lock, *block))) {
        if (epoch_ == epoch && backend_.ordered_behind(fence)) {
            retire_through(*block);
        }
        return {FreeResult::Kind::freed, {}};
    }
    if (sync == FreeSync::automatic && backend_.fence_query(fence) == FenceState::complete) {
        retire(*block, FenceState::complete);
        return {FreeResult::Kind::freed, {}};
    }
    // Pending, or failed: then the wait returns immediately, with the error.
    return {FreeResult::Kind::freed, wait_for(lock, *block).status};
}

/// The number of a stream's list, from 1; 0 when no more lists are possible. An empty list is
/// reused for the next stream.
std::uint32_t Pool::Impl::stream_list(StreamId stream) {
    constexpr std::size_t max_streams = 256;
    std::size_t unused = streams_.size();
    for (std::size_t i = 0; i < streams_.size(); ++i) {
        if (streams_[i].stream == stream) {
            return static_cast<std::uint32_t>(i + 1);
        }
        if (streams_[i].blocks.empty()) {
            unused = i;
        }
    }
    if (unused == streams_.size()) {
        if (unused == max_streams) {
            return 0;
        }
        try {
            streams_.emplace_back();
        } catch (const std::bad_alloc&) {
            return 0;
        }
    }
    streams_[unused].stream = stream;
    return static_cast<std::uint32_t>(unused + 1);
}

/// The stream's work may still run: its blocks stay in an anonymous list until they are retired.
void Pool::Impl::forget_stream(StreamId stream) {
    const Lock lock(mutex_);
    for (StreamFrees& frees : streams_) {
        if (stream == 0 || frees.stream == stream) {
            frees.stream = 0;
        }
    }
}

/// Whether a block becomes free immediately when the device is ordered behind its fence. Not while
/// others are pending: those are retired first, in order.
bool Pool::Impl::frees_immediately(FreeSync sync) const {
    return pending_.empty() && (sync == FreeSync::never ||
                                (sync == FreeSync::automatic && backend_.caller_never_waits()));
}

/// Queries the backend about the caller, without the lock, since that may inspect stacks and
/// libraries. When the host may continue, the block stays pending like any other.
[[gnu::hot]] bool Pool::Impl::host_may_continue(Lock& lock, Block& block) {
    const std::uint64_t epoch = begin_wait(lock, block);
    const bool may_continue = !backend_.caller_needs_host_wait();
    if (!end_wait(lock, block, epoch)) {
        return true;
    }
    retired_.notify_all();  // this thread may not retire the block: others must stop relying on it
    return may_continue;
}

/// Drops the lock for a wait for the block; returns the epoch for end_wait(), which takes it again
/// and is false where abandon() was called meanwhile.
[[gnu::hot]] std::uint64_t Pool::Impl::begin_wait(Lock& lock, Block& block) {
    const std::uint64_t epoch = epoch_;
    block.waited_for = true;
    waiting_here = {this, &block, epoch};
    lock.unlock();
    return epoch;
}

[[gnu::hot]] bool Pool::Impl::end_wait(Lock& lock, Block& block, std::uint64_t epoch) {
    lock.lock();
    waiting_here.pool = nullptr;
    if (epoch_ != epoch) {
        return false;
    }
    block.waited_for = false;
    return true;
}

void Pool::Impl::forget_left_wait() {
    if (waiting_here.pool != this) {
        return;
    }
    const Lock lock(mutex_);
    if (epoch_ == waiting_here.epoch) {
        waiting_here.block->waited_for = false;
        retired_.notify_all();
    }
    waiting_here.pool = nullptr;
}

[[gnu::hot]] void Pool::Impl::enqueue_pending(Block& block, Fence fence, std::uint32_t list) {
    block.state = BlockState::pending;
    block.list = list;
    block.use.fence = fence;
    block.use.order = fences_recorded_++;
    pending_list(block).push_back(block);
}

/// Applies the state of a pending block's fence: frees the block, or quarantines it if the fence
/// failed. The block may be coalesced away.
[[gnu::hot]] void Pool::Impl::retire(Block& block, FenceState state) {
    if (state == FenceState::pending) {
        return;
    }
    pending_list(block).remove(block);
    backend_.fence_release(block.use.fence);
    block.use.fence = 0;
    if (state == FenceState::complete) {
        complete(block);
    } else {
        block.state = BlockState::quarantined;
    }
}

[[gnu::hot]] void Pool::Impl::complete(Block& block) {
    observer_.on_free_completed(describe(block));
    free_block(block);
}

/// Makes a retired block reusable. It may be coalesced away.
[[gnu::hot]] void Pool::Impl::free_block(Block& block) {
    const bool small = block.segment->small;
    decrease(stats_.active, small, 1);
    decrease(stats_.active_bytes, small, block.size);
    decrease(stats_.requested_bytes, small, block.use.requested);
    store_.free_block(block);
    count_split(small);
}

/// Before an allocation: retires completed frees, as far as the queries are worth their cost. They
/// dominate an allocation while the device is busy: 0.1 us for a pending fence, 1.2 us for a
/// complete one (H200). None is made where a block of the exact size is free. For large blocks all
/// are made, since a needless split may cost a segment later. Small segments are cheap, so where a
/// small block can be split, polling at every eighth allocation suffices.
[[gnu::hot]] void Pool::Impl::poll_pending(const SizePolicy::Plan& plan) {
    constexpr unsigned poll_interval = 8;
    if (store_.has_exact_fit(plan.size, plan.small)) {
        return;
    }
    if (plan.small) {
        if (++small_polls_skipped_ < poll_interval && store_.has_fit(plan.size, true)) {
            return;
        }
        small_polls_skipped_ = 0;
        retire_recent();
        if (store_.has_fit(plan.size, true)) {
            return;
        }
    }
    retire_completed();
}

/// Retires completed frees of pending_, where a complete fence implies all earlier ones. Searches
/// backwards from the newest, since a "pending" result is the cheap one, in doubling steps that
/// begin at half the length of the last time, and stops at the first complete fence. The frees
/// between the last two probes are left for later. The distance is limited: if the device is far
/// behind, walking the list would cost more than it gains.
[[gnu::hot]] void Pool::Impl::retire_recent() {
    constexpr std::size_t max_distance = 32;
    Block* block = pending_.newest();
    std::size_t walked = 0;
    for (std::size_t back = last_pending_count_ / 2; back <= max_distance; back = 2 * back + 1) {
        for (; block != nullptr && walked < back; ++walked) {
            block = block->use.list_previous;
        }
        if (block == nullptr) {
            break;
        }
        const FenceState state = backend_.fence_query(block->use.fence);
        if (state == FenceState::complete) {
            retire_through(*block);
        }
        if (state != FenceState::pending) {  // failed: left to retire_completed()
            break;
        }
    }
    last_pending_count_ = pending_.size();
}

/// Retires all completed frees, without waiting.
void Pool::Impl::retire_completed() {
    retire_completed(pending_);
    last_pending_count_ = pending_.size();
    for (const StreamFrees& frees : streams_) {
        retire_completed(frees.blocks);
    }
}

/// Galloping search from the oldest: the step between queries doubles while fences are complete,
/// and is reset to one when they are not.
void Pool::Impl::retire_completed(const BlockList& list) {
    std::size_t step = 1;
    std::uint64_t pending = fences_recorded_;  // fences from this order on are known to be pending
    for (;;) {
        Block* first = oldest_unwaited(list);
        if (first == nullptr || first->use.order >= pending) {
            break;
        }
        Block* probe = first;
        for (std::size_t i = 1; i < step && probe->use.list_next != nullptr &&
                                probe->use.list_next->use.order < pending;
             ++i) {
            probe = probe->use.list_next;
        }
        const FenceState state = backend_.fence_query(probe->use.fence);
        if (state == FenceState::complete) {
            retire_through(*probe);
            step *= 2;
        } else if (probe != first) {
            pending = state == FenceState::pending ? probe->use.order : pending;
            step = 1;
        } else if (state == FenceState::pending) {
            break;
        } else {
            retire(*first, state);
        }
    }
}

/// The oldest block of a list that no thread waits for; null when there is none.
Block* Pool::Impl::oldest_unwaited(const BlockList& list) {
    Block* block = list.oldest();
    while (block != nullptr && block->waited_for) {
        block = block->use.list_next;
    }
    return block;
}

/// Retires `last` and all earlier blocks of its list, and the later ones that share its fence. The
/// fence must be complete, or the device ordered behind it.
[[gnu::hot]] void Pool::Impl::retire_through(const Block& last) {
    const std::uint64_t end = last.use.order;
    const Fence fence = last.use.fence;
    for (Block* block = pending_list(last).oldest();
         block != nullptr && (block->use.order <= end || block->use.fence == fence);) {
        Block* next = block->use.list_next;
        if (!block->waited_for) {
            retire(*block, FenceState::complete);
        }
        block = next;
    }
}

/// Waits for a pending block without the lock, then retires it.
Pool::Impl::HostWait Pool::Impl::wait_for(Lock& lock, Block& block) {
    const Fence fence = block.use.fence;
    const std::uint64_t epoch = begin_wait(lock, block);
    HostWait wait{backend_.fence_wait_host(fence), true};
    if (!end_wait(lock, block, epoch)) {
        return wait;
    }
    const FenceState state = wait.status.ok() ? FenceState::complete : backend_.fence_query(fence);
    wait.retired = state != FenceState::pending;
    retire(block, state);
    retired_.notify_all();
    return wait;
}

/// Waits on the host until all blocks that are in pending_ now are retired, as cudaFree would have
/// before it returned. The newest fence first: it completes last, so one wait suffices. Not for
/// stream-ordered frees: plain CUDA's allocations do not wait for those either.
void Pool::Impl::wait_for_all_pending(Lock& lock) {
    ++stats_.num_sync_all_streams;
    observer_.on_sync();
    const std::uint64_t end = fences_recorded_;
    for (;;) {
        bool others_wait = false;
        Block* block = pending_.newest();
        while (block != nullptr && (block->use.order >= end || block->waited_for)) {
            others_wait = others_wait || (block->use.order < end && block->waited_for);
            block = block->use.list_previous;
        }
        if (block != nullptr) {
            if (!wait_for(lock, *block).retired) {
                return;  // the wait itself failed
            }
            retire_completed();
        } else if (others_wait) {
            retired_.wait(lock);
        } else {
            retire_completed();
            return;
        }
    }
}

/// The same for the blocks that are deferred now: plain CUDA has their memory back when cudaFree
/// returns, even during a capture.
void Pool::Impl::wait_for_all_deferred(Lock& lock) {
    if (deferred_.oldest() == nullptr) {
        return;
    }
    const std::uint64_t end = frees_deferred_;
    const std::uint64_t epoch = epoch_;
    lock.unlock();
    const BackendStatus waited = backend_.wait_host();
    lock.lock();
    if (!waited.ok() || epoch_ != epoch) {
        return;
    }
    for (Block* block = deferred_.oldest(); block != nullptr && block->use.order < end;
         block = deferred_.oldest()) {
        deferred_.remove(*block);
        complete(*block);
    }
}

void Pool::Impl::fence_deferred() {
    const Lock lock(mutex_);
    while (Block* block = deferred_.oldest()) {
        Fence fence = 0;
        if (!backend_.fence_record(&fence).ok()) {
            return;
        }
        deferred_.remove(*block);
        if (fence == 0) {
            complete(*block);
        } else {
            enqueue_pending(*block, fence, 0);
        }
    }
    retire_completed();
}

bool Pool::Impl::retire(Address address) {
    const Lock lock(mutex_);
    Block* block = store_.find(address);
    if (block == nullptr || block->address != address || block->waited_for) {
        return false;
    }
    if (block->state == BlockState::pending) {
        retire(*block, FenceState::complete);
        return true;
    }
    if (block->state == BlockState::deferred) {
        deferred_.remove(*block);
        complete(*block);
        return true;
    }
    return false;
}

// --- the cache ----------------------------------------------------------------------------------

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
    decrease(stats_.segment, segment.small, 1);
    decrease(stats_.reserved_bytes, segment.small, segment.size);
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

/// Frees all unused segments, then the free whole pages of ranges.
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

/// Unmaps free pages; returns the bytes that the backend took back.
std::uint64_t Pool::Impl::unmap(Block& block, Address begin, std::uint64_t bytes) {
    if (!store_.reserve()) {
        return 0;
    }
    const Segment& segment = *block.segment;
    observer_.on_segment_unmap(begin, bytes);
    store_.unmap(block, begin, bytes);
    ++stats_.num_device_free;
    decrease(stats_.segment, segment.small, segment.mapped == 0 ? 1 : 0);
    decrease(stats_.reserved_bytes, segment.small, bytes);
    return backend_.pages_unmap(begin, bytes).ok() ? bytes : 0;
}

/// Keeps the reserved bytes at their high-water mark while there are free whole pages: before a
/// growth would exceed it, unmaps the excess, largest free blocks first, but not the blocks that
/// the growth extends.
void Pool::Impl::reclaim_pages(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag) {
    const std::uint64_t whole = (plan.size + page_bytes - 1) / page_bytes * page_bytes;
    for (bool reported = false;; reported = true) {
        const BlockStore::Growth growth = store_.best_growth(plan.size, plan.small);
        const std::uint64_t more = growth.hole != nullptr ? growth.bytes : whole;
        const auto reserved = static_cast<std::uint64_t>(stats_.reserved_bytes.all.current);
        const auto peak = static_cast<std::uint64_t>(stats_.reserved_bytes.all.peak);
        if (more <= peak - reserved) {
            return;
        }
        const std::uint64_t excess = more - (peak - reserved);
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
        const std::uint64_t bytes =
            std::min(pages.bytes, (excess + page_bytes - 1) / page_bytes * page_bytes);
        const Address end = pages.begin + pages.bytes;
        if (!store_.reserve()) {
            return;
        }
        unmap(*pages.block, end - bytes, bytes);
    }
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
    bool changes = grown_since_trim_;
    const auto check = [&](std::uint64_t idle_since_ns) {
        changes = changes || idle_since_ns == never_seen || is_due(idle_since_ns);
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
    const auto reserved = static_cast<std::uint64_t>(stats_.reserved_bytes.all.current);
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
    for (StatByPool* stat :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
          &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
          &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
        clear_current(*stat);
    }
    clear_current(stats_.oversize_allocations);
    clear_current(stats_.oversize_segments);
    trimmed_at_ns_ = never_seen;
    grown_since_trim_ = false;
    retired_.notify_all();
}

[[gnu::hot]] void Pool::Impl::count_split(bool small) {
    const BlockStore::SplitFree now = store_.split_free(small);
    set_current(stats_.inactive_split, small, now.blocks);
    set_current(stats_.inactive_split_bytes, small, now.bytes);
}

// --- queries ------------------------------------------------------------------------------------

std::optional<BlockInfo> Pool::Impl::find(Address address) const {
    const Lock lock(mutex_);
    return find_locked(address);
}

std::optional<BlockInfo> Pool::Impl::try_find(Address address, bool* busy) const {
    const Lock lock(mutex_, std::try_to_lock);
    *busy = !lock.owns_lock();
    return *busy ? std::nullopt : find_locked(address);
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

PoolStats Pool::Impl::stats() const {
    const Lock lock(mutex_);
    PoolStats stats = stats_;
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
    PoolStats counted;
    for (const auto& [base, segment] : store_.segments()) {
        increase(counted.segment, segment.small, segment.mapped != 0 ? 1 : 0);
        increase(counted.reserved_bytes, segment.small, segment.mapped);
        if (!segment.expandable && policy_.oversize(segment.size)) {
            increase(counted.oversize_segments, 1);
        }
    }
    store_.for_each_block([&](const Block& block) {
        const bool small = block.segment->small;
        if (block.state == BlockState::unmapped) {
            return;
        }
        if (block.state == BlockState::free) {
            if (!block.segment->expandable && block.segment->blocks > 1) {
                increase(counted.inactive_split, small, 1);
                increase(counted.inactive_split_bytes, small, block.size);
            }
            return;
        }
        increase(counted.active, small, 1);
        increase(counted.active_bytes, small, block.size);
        increase(counted.requested_bytes, small, block.use.requested);
        if (block.state == BlockState::live) {
            increase(counted.allocation, small, 1);
            increase(counted.allocated_bytes, small, block.size);
            if (policy_.oversize(block.size)) {
                increase(counted.oversize_allocations, 1);
            }
        }
    });
    struct Named {
        const char* name;
        StatByPool PoolStats::*stat;
    };
    constexpr Named all[] = {{"allocation", &PoolStats::allocation},
                             {"segment", &PoolStats::segment},
                             {"active", &PoolStats::active},
                             {"inactive_split", &PoolStats::inactive_split},
                             {"allocated_bytes", &PoolStats::allocated_bytes},
                             {"reserved_bytes", &PoolStats::reserved_bytes},
                             {"active_bytes", &PoolStats::active_bytes},
                             {"inactive_split_bytes", &PoolStats::inactive_split_bytes},
                             {"requested_bytes", &PoolStats::requested_bytes}};
    for (const Named& each : all) {
        for (Stat StatByPool::*part :
             {&StatByPool::all, &StatByPool::small_pool, &StatByPool::large_pool}) {
            const Stat& stat = stats_.*each.stat.*part;
            const Stat& truth = counted.*each.stat.*part;
            if (std::string problem = compare_stat(each.name, stat, truth); !problem.empty()) {
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

std::string Pool::Impl::validate() const {
    const Lock lock(mutex_);
    if (std::string problem = store_.validate(); !problem.empty()) {
        return problem;
    }
    if (std::string problem = validate_frees(); !problem.empty()) {
        return problem;
    }
    return validate_stats();
}

// --- Pool -------------------------------------------------------------------------------------

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
