// The pool's two orders of events: how an allocation looks for memory, and how a free becomes
// reusable. Which block and where is BlockStore's, which size SizePolicy's.
//
// The one subtle thing is a thread that waits on the host for a block's fence without the lock.
// The block is marked `waited_for`, and from then on only that thread settles it: so block and
// fence stay valid for it without reference counts. Whoever needs the block meanwhile waits for the
// thread (settled_), which is as good as waiting for the fence. abandon() may take everything away
// during the wait; epoch_ tells.
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

/// The first of `count` ids that nobody else gets.
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

std::string problem_of(const char* name, const Stat& stat, const Stat& truth) {
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
    void on_make_room(std::uint64_t, Tag) override {}
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
          observer_(observer != nullptr ? *observer : deaf_),
          store_(policy_),
          garbage_limit_(garbage_limit(options, backend)) {
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
    PoolStats stats() const;
    bool settle(Address address);
    void release_for_retry(std::uint64_t requested, Tag tag);
    void make_room(std::uint64_t requested, Tag tag);
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
    bool order_device_behind(const SizePolicy::Plan& plan);

    /// What was freed in the order of one stream and is pending behind its work.
    struct StreamFrees {
        StreamId stream;
        BlockList blocks;
    };

    std::optional<BlockInfo> find_locked(Address address) const;
    Block* find_live(Address address, FreeResult::Kind* why_not);
    FreeResult keep_back(Block& block, Tag tag, BackendStatus status);
    void count_free(const Block& block);
    std::uint32_t list_of(StreamId stream);
    BlockList& list_of(const Block& block) {
        return block.behind == 0 ? pending_ : streams_[block.behind - 1].blocks;
    }
    void put_behind(Block& block, Fence fence, std::uint32_t list);
    void settle(Block& block, FenceState state);
    bool goes_on_at_once(FreeSync sync) const;
    bool host_goes_on(Lock& lock, Block& block);
    void complete(Block& block);
    void put_back(Block& block);
    void look_at_pending(const SizePolicy::Plan& plan);
    void settle_most();
    void settle_all();
    void settle_all(const BlockList& list);
    static Block* oldest_unattended(const BlockList& list);
    void settle_up_to(const Block& last);
    struct Waited {
        BackendStatus status;
        bool settled = false;
    };
    Waited wait_for(Lock& lock, Block& block);
    void wait_for_all_pending(Lock& lock);
    void wait_for_all_deferred(Lock& lock);

    void prepare_retry(Lock& lock, std::uint64_t requested, Tag tag);
    std::uint64_t release_unused(Lock& lock);
    bool collect_garbage(Lock& lock, std::uint64_t requested, Tag tag);
    void forget(const Segment& segment, LeavingSegments& leaving);
    std::uint64_t give_back(Lock& lock, const LeavingSegments& leaving);
    /// Calls visit(Segment&) for each unused segment, by (size, address); it may forget that one.
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
    void make_room_in_ranges(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag);
    void count_split(bool small);
    std::string validate_frees() const;
    std::string validate_stats() const;

    const SizePolicy policy_;
    DeviceBackend& backend_;
    NullObserver deaf_;
    PoolObserver& observer_;

    mutable std::mutex mutex_;
    std::condition_variable settled_;  ///< a thread that waited for a block is done with it
    BlockStore store_;
    BlockList pending_;  ///< behind a fence, in the order in which the fences were recorded
    std::vector<StreamFrees> streams_;  ///< the same, of single streams; entries stay
    BlockList deferred_;                ///< no fence yet, in the order of the frees
    PoolStats stats_;
    std::uint64_t fences_recorded_ = 0;
    std::uint64_t frees_deferred_ = 0;
    std::size_t left_pending_ = 0;       ///< how many were, when they were last asked
    unsigned small_unasked_ = 0;         ///< small allocations since then that needed no answer
    const std::uint64_t garbage_limit_;  ///< collect_garbage() keeps no more than this reserved
    bool no_more_ranges_ = false;
    static constexpr std::uint64_t ids_at_once = 1024;
    std::uint64_t next_id_ = 0;
    std::uint64_t ids_end_ = 0;
    std::uint64_t epoch_ = 0;  ///< how often everything was abandoned
};

// --- allocation -------------------------------------------------------------------------------

[[gnu::hot]] AllocResult Pool::Impl::allocate(std::uint64_t requested, Tag tag) {
    Lock lock(mutex_);
    const auto plan = policy_.plan(requested);
    if (!plan) {
        return refuse({BackendStatus::Kind::out_of_memory, out_of_memory_code},
                      store_.largest_free());
    }
    look_at_pending(*plan);
    Attempt attempt = take_or_grow(lock, *plan, requested, tag);
    if (attempt.status.kind != BackendStatus::Kind::out_of_memory) {
        return attempt.block != nullptr ? serve(*attempt.block, requested, tag)
                                        : refuse(attempt.status, 0);
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

/// A free block, or one from new memory. What is to go back before the pool grows goes back; while
/// it does, without the lock, others may have freed: then everything is looked at anew.
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
        make_room_in_ranges(plan, requested, tag);
        if (!store_.reserve()) {
            return {nullptr, no_host_memory};
        }
        // A block that was too large to be cut (max_split_size) may have become smaller.
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
    if (next_id_ == ids_end_) {  // some at a time: pools do not share a cache line for each
        next_id_ = take_block_ids(ids_at_once);
        ids_end_ = next_id_ + ids_at_once;
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
                // A range without memory would be one that no event ever told.
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
        // The memory is good, it is our picture that is not: hand it back, claim nothing.
        backend_.segment_free(base, bytes);
        return {BackendStatus::Kind::error, unusable_segment_code};
    }
    *fresh = &store_.add_segment(base, bytes, plan.small);
    ++stats_.num_device_alloc;
    increase(stats_.segment, plan.small, 1);
    increase(stats_.reserved_bytes, plan.small, bytes);
    if (policy_.oversize(bytes)) {
        increase(stats_.oversize_segments, 1);
    }
    observer_.on_segment_alloc(base, bytes, tag);
    return status;
}

/// Maps pages into a range; *fresh is the free block that they made large enough.
BackendStatus Pool::Impl::grow_in_place(const BlockStore::Growth& growth, Tag tag, Block** fresh) {
    const BackendStatus status = backend_.pages_map(growth.begin, growth.bytes);
    if (!status.ok()) {
        return status;
    }
    const bool first = growth.hole->segment->mapped == 0;
    *fresh = &store_.map(growth);
    const bool small = (*fresh)->segment->small;
    ++stats_.num_device_alloc;
    increase(stats_.segment, small, first ? 1 : 0);
    increase(stats_.reserved_bytes, small, growth.bytes);
    observer_.on_segment_map(growth.begin, growth.bytes, tag);
    return status;
}

/// One range more. The first refusal is the last question: a backend without ranges stays one.
bool Pool::Impl::add_range(const SizePolicy::Plan& plan) {
    if (no_more_ranges_) {
        return false;
    }
    const std::uint64_t bytes = policy_.range_bytes(plan.size, backend_.total_memory());
    Address base = 0;
    if (!backend_.range_reserve(&base, bytes).ok()) {
        no_more_ranges_ = true;
        return false;
    }
    if (!store_.can_add_range(base, bytes)) {
        backend_.range_release(base, bytes);
        no_more_ranges_ = true;
        return false;
    }
    store_.add_range(base, bytes, plan.small);
    return true;
}

/// Memory is short: makes the oldest pending block that is large enough reusable, without stopping
/// the host, by ordering all future device work behind its fence. The blocks freed before it are
/// then just as safe.
bool Pool::Impl::order_device_behind(const SizePolicy::Plan& plan) {
    Block* chosen = pending_.oldest();
    while (chosen != nullptr &&
           (chosen->waited_for || !store_.fits(*chosen, plan.size, plan.small))) {
        chosen = chosen->use.list_next;
    }
    if (chosen == nullptr || !backend_.fence_wait_device(chosen->use.fence).ok()) {
        return false;
    }
    settle_up_to(*chosen);
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

/// The block is given back, and gets its fence later.
FreeResult Pool::Impl::keep_back(Block& block, Tag tag, BackendStatus status) {
    count_free(block);
    observer_.on_free_requested(describe(block), tag);
    block.state = BlockState::deferred;
    block.use.order = frees_deferred_++;
    deferred_.push_back(block);
    return {FreeResult::Kind::freed, status};
}

/// In the order of one stream, or, `stream` 0, behind all work.
[[gnu::hot]] FreeResult Pool::Impl::free(Address address, Tag tag, FenceTiming timing,
                                         StreamId stream) {
    Lock lock(mutex_);
    FreeResult::Kind why_not{};
    Block* block = find_live(address, &why_not);
    if (block == nullptr) {
        return {why_not, {}};
    }
    if (timing == FenceTiming::deferred) {
        return keep_back(*block, tag, {});
    }
    const std::uint32_t list = stream != 0 ? list_of(stream) : 0;
    Fence fence = 0;
    bool alone = list != 0;
    const BackendStatus status =
        alone ? backend_.fence_record_in(stream, &fence, &alone) : backend_.fence_record(&fence);
    if (!status.ok()) {
        return status.kind == BackendStatus::Kind::not_now
                   ? keep_back(*block, tag, status)
                   : FreeResult{FreeResult::Kind::refused, status};
    }
    count_free(*block);
    const FreeSync sync =
        timing == FenceTiming::now ? policy_.options().free_sync : FreeSync::never;
    if (fence == 0 || (stream == 0 && goes_on_at_once(sync) && backend_.ordered_behind(fence))) {
        if (fence != 0) {
            backend_.fence_release(fence);
        }
        observer_.on_freed(describe(*block), tag);
        put_back(*block);
        return {FreeResult::Kind::freed, {}};
    }
    observer_.on_free_requested(describe(*block), tag);
    put_behind(*block, fence, alone ? list : 0);
    if (backend_.fence_needs_host_wait(fence)) {
        return {FreeResult::Kind::freed, wait_for(lock, *block).status};
    }
    if (stream != 0) {
        return {FreeResult::Kind::freed, {}};
    }
    // A query costs more than the record while the device is at work: none where nothing depends on
    // the answer. The next allocation that needs the memory asks.
    const std::uint64_t epoch = epoch_;
    if (sync == FreeSync::never || (sync == FreeSync::automatic && host_goes_on(lock, *block))) {
        if (epoch_ == epoch && backend_.ordered_behind(fence)) {
            settle_up_to(*block);
        }
        return {FreeResult::Kind::freed, {}};
    }
    if (sync == FreeSync::automatic && backend_.fence_query(fence) == FenceState::complete) {
        settle(*block, FenceState::complete);
        return {FreeResult::Kind::freed, {}};
    }
    // Failed: only the wait, which then returns at once, tells the error.
    return {FreeResult::Kind::freed, wait_for(lock, *block).status};
}

/// The number of a stream's list, from 1; 0 when there can be no more. An entry without blocks
/// serves the next stream.
std::uint32_t Pool::Impl::list_of(StreamId stream) {
    constexpr std::size_t most = 256;
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
        if (unused == most) {
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

/// Its work may still run: the blocks stay in a list of no stream until they are settled.
void Pool::Impl::forget_stream(StreamId stream) {
    const Lock lock(mutex_);
    for (StreamFrees& frees : streams_) {
        if (stream == 0 || frees.stream == stream) {
            frees.stream = 0;
        }
    }
}

/// Whether a block whose fence needs no waiting for is free at once. While others are pending they
/// are settled first, in their order.
bool Pool::Impl::goes_on_at_once(FreeSync sync) const {
    return pending_.empty() && (sync == FreeSync::never ||
                                (sync == FreeSync::automatic && backend_.caller_surely_goes_on()));
}

/// Asks the backend about the caller without the lock: it may look at stacks and libraries. When
/// the caller relies on nothing the block stays pending like any other.
[[gnu::hot]] bool Pool::Impl::host_goes_on(Lock& lock, Block& block) {
    const std::uint64_t epoch = epoch_;
    block.waited_for = true;
    lock.unlock();
    const bool goes_on = !backend_.caller_needs_host_wait();
    lock.lock();
    if (epoch_ != epoch) {
        return true;
    }
    block.waited_for = false;
    settled_
        .notify_all();  // no matter what becomes of it: nobody may count on this thread any more
    return goes_on;
}

[[gnu::hot]] void Pool::Impl::put_behind(Block& block, Fence fence, std::uint32_t list) {
    block.state = BlockState::pending;
    block.behind = list;
    block.use.fence = fence;
    block.use.order = fences_recorded_++;
    list_of(block).push_back(block);
}

/// Draws the consequence of a pending block's fence. The block may be merged away by it.
[[gnu::hot]] void Pool::Impl::settle(Block& block, FenceState state) {
    if (state == FenceState::pending) {
        return;
    }
    list_of(block).remove(block);
    backend_.fence_release(block.use.fence);
    block.use.fence = 0;
    if (state == FenceState::complete) {
        complete(block);
    } else {
        block.state = BlockState::lost;
    }
}

[[gnu::hot]] void Pool::Impl::complete(Block& block) {
    observer_.on_free_completed(describe(block));
    put_back(block);
}

/// What nothing uses any more is free memory. The block may be merged away by it.
[[gnu::hot]] void Pool::Impl::put_back(Block& block) {
    const bool small = block.segment->small;
    decrease(stats_.active, small, 1);
    decrease(stats_.active_bytes, small, block.size);
    decrease(stats_.requested_bytes, small, block.use.requested);
    store_.put_back(block);
    count_split(small);
}

/// Before an allocation: settles what is complete, as far as that is worth its price. To ask is the
/// dearest part of an allocation while the device is at work: 0.1 us for a fence that is pending,
/// 1.2 us for one that is complete (an H200). Nothing is asked where a block of just the right size
/// is free. Large blocks are worth every question: one cut needlessly may cost a segment later.
/// Small ones come from segments that cost little, so where one can be cut, every few allocations
/// are enough.
[[gnu::hot]] void Pool::Impl::look_at_pending(const SizePolicy::Plan& plan) {
    constexpr unsigned enough = 8;
    if (store_.has_exactly(plan.size, plan.small)) {
        return;
    }
    if (plan.small) {
        if (++small_unasked_ < enough && store_.has_fit(plan.size, true)) {
            return;
        }
        small_unasked_ = 0;
        settle_most();
        if (store_.has_fit(plan.size, true)) {
            return;
        }
    }
    settle_all();
}

/// Of what is pending behind all work, where one fence that is complete answers for all before it:
/// looks back from the newest, since "pending" is the cheap answer, by doubled
/// distances from where frees were still pending the last time, and stops at the first that is
/// complete. What lies between is left for later. Where the device is far behind the way along the
/// list would cost more than it saves.
[[gnu::hot]] void Pool::Impl::settle_most() {
    constexpr std::size_t near = 32;
    Block* block = pending_.newest();
    std::size_t walked = 0;
    for (std::size_t back = left_pending_ / 2; back <= near; back = 2 * back + 1) {
        for (; block != nullptr && walked < back; ++walked) {
            block = block->use.list_previous;
        }
        if (block == nullptr) {
            break;
        }
        const FenceState state = backend_.fence_query(block->use.fence);
        if (state == FenceState::complete) {
            settle_up_to(*block);
        }
        if (state != FenceState::pending) {  // failed: settle_all() draws the consequence
            break;
        }
    }
    left_pending_ = pending_.size();
}

/// Settles all that is complete, without waiting.
void Pool::Impl::settle_all() {
    settle_all(pending_);
    left_pending_ = pending_.size();
    for (const StreamFrees& frees : streams_) {
        settle_all(frees.blocks);
    }
}

/// The oldest first: the steps between questions double as long as the answer is yes, and begin
/// anew at one when it is not.
void Pool::Impl::settle_all(const BlockList& list) {
    std::size_t step = 1;
    std::uint64_t pending = fences_recorded_;  // from this order on they are known to be
    for (;;) {
        Block* first = oldest_unattended(list);
        if (first == nullptr || first->use.order >= pending) {
            break;
        }
        Block* asked = first;
        for (std::size_t i = 1; i < step && asked->use.list_next != nullptr &&
                                asked->use.list_next->use.order < pending;
             ++i) {
            asked = asked->use.list_next;
        }
        const FenceState state = backend_.fence_query(asked->use.fence);
        if (state == FenceState::complete) {
            settle_up_to(*asked);
            step *= 2;
        } else if (asked != first) {
            pending = state == FenceState::pending ? asked->use.order : pending;
            step = 1;
        } else if (state == FenceState::pending) {
            break;
        } else {
            settle(*first, state);
        }
    }
}

/// The oldest block of a list that no thread is waiting for; null when there is none.
Block* Pool::Impl::oldest_unattended(const BlockList& list) {
    Block* block = list.oldest();
    while (block != nullptr && block->waited_for) {
        block = block->use.list_next;
    }
    return block;
}

/// The fence of `last`, or something that stands for it, is complete, and so are all before it in
/// its list. Also those behind that share it.
[[gnu::hot]] void Pool::Impl::settle_up_to(const Block& last) {
    const std::uint64_t end = last.use.order;
    const Fence fence = last.use.fence;
    for (Block* block = list_of(last).oldest();
         block != nullptr && (block->use.order <= end || block->use.fence == fence);) {
        Block* next = block->use.list_next;
        if (!block->waited_for) {
            settle(*block, FenceState::complete);
        }
        block = next;
    }
}

/// Waits for a pending block without the lock, then settles it.
Pool::Impl::Waited Pool::Impl::wait_for(Lock& lock, Block& block) {
    const std::uint64_t epoch = epoch_;
    const Fence fence = block.use.fence;
    block.waited_for = true;
    lock.unlock();
    Waited waited{backend_.fence_wait_host(fence), true};
    lock.lock();
    if (epoch_ != epoch) {
        return waited;
    }
    block.waited_for = false;
    const FenceState state =
        waited.status.ok() ? FenceState::complete : backend_.fence_query(fence);
    waited.settled = state != FenceState::pending;
    settle(block, state);
    settled_.notify_all();
    return waited;
}

/// Waits on the host until all blocks that are pending now behind all work are settled, as cudaFree
/// would have before it returned. The newest fence first: it completes last, so one wait is enough.
/// What a stream has yet to free is not waited for: plain CUDA's allocations do not wait for it
/// either.
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
            if (!wait_for(lock, *block).settled) {
                return;  // the wait itself failed: nothing more to hope for
            }
            settle_all();
        } else if (others_wait) {
            settled_.wait(lock);
        } else {
            settle_all();
            return;
        }
    }
}

/// The same of the blocks that have no fence now: plain CUDA has their memory back by the time that
/// its cudaFree returns, whatever is being captured.
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
            put_behind(*block, fence, 0);
        }
    }
    settle_all();
}

bool Pool::Impl::settle(Address address) {
    const Lock lock(mutex_);
    Block* block = store_.find(address);
    if (block == nullptr || block->address != address || block->waited_for) {
        return false;
    }
    if (block->state == BlockState::pending) {
        settle(*block, FenceState::complete);
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
        settle_all();
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

/// Forgets an unused segment, which the caller then gives back.
void Pool::Impl::forget(const Segment& segment, LeavingSegments& leaving) {
    observer_.on_segment_free(segment.base, segment.size);
    ++stats_.num_device_free;
    decrease(stats_.segment, segment.small, 1);
    decrease(stats_.reserved_bytes, segment.small, segment.size);
    if (policy_.oversize(segment.size)) {
        decrease(stats_.oversize_segments, 1);
    }
    store_.remove_segment(segment.base, leaving);
}

/// Gives forgotten segments back, without the lock: the backend may wait for the device. Returns
/// the bytes that it took.
std::uint64_t Pool::Impl::give_back(Lock& lock, const LeavingSegments& leaving) {
    if (leaving.empty()) {
        return 0;
    }
    const std::uint64_t epoch = epoch_;
    std::uint64_t taken = 0;
    for (const auto& entry : leaving) {
        if (epoch_ != epoch) {
            break;  // the rest went with its context; others may have its addresses by now
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

/// Whole segments first, then the whole pages that are free in ranges.
std::uint64_t Pool::Impl::release_unused(Lock& lock) {
    LeavingSegments leaving;
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](const Segment& segment) { forget(segment, leaving); });
    }
    std::uint64_t unmapped = 0;
    for (const bool small : {false, true}) {
        for_each_free_pages(small, [&](const BlockStore::Pages& pages) {
            unmapped += unmap(*pages.block, pages.begin, pages.bytes);
        });
    }
    return unmapped + give_back(lock, leaving);
}

/// Takes the memory of free pages away; returns the bytes that went back to the backend.
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

/// What is reserved does not pass its high-water mark while whole free pages are there: as many as
/// the growth would pass it by lose their memory, those of the largest free blocks first. What the
/// growth extends is left alone.
void Pool::Impl::make_room_in_ranges(const SizePolicy::Plan& plan, std::uint64_t requested,
                                     Tag tag) {
    const std::uint64_t whole = (plan.size + page_bytes - 1) / page_bytes * page_bytes;
    for (bool told = false;; told = true) {
        const BlockStore::Growth growth = store_.best_growth(plan.size, plan.small);
        const std::uint64_t more = growth.hole != nullptr ? growth.bytes : whole;
        const auto reserved = static_cast<std::uint64_t>(stats_.reserved_bytes.all.current);
        const auto highest = static_cast<std::uint64_t>(stats_.reserved_bytes.all.peak);
        if (more <= highest - reserved) {
            return;
        }
        const std::uint64_t excess = more - (highest - reserved);
        const BlockStore::Pages pages = store_.largest_free_pages(growth);
        if (pages.bytes == 0) {
            return;
        }
        if (!told) {
            observer_.on_make_room(requested, tag);
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
    const std::uint64_t trim_after = policy_.options().trim_after_ns;
    if (trim_after == 0) {
        return 0;
    }
    settle_all();
    const auto is_due = [&](std::uint64_t idle_since_ns) {
        return now_ns >= idle_since_ns && now_ns - idle_since_ns >= trim_after;
    };
    bool changes = false;
    const auto look = [&](std::uint64_t idle_since_ns) {
        changes = changes || idle_since_ns == never_seen || is_due(idle_since_ns);
    };
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](const Segment& segment) { look(segment.idle_since_ns); });
        for_each_free_pages(
            small, [&](const BlockStore::Pages& pages) { look(pages.block->idle.since_ns); });
    }
    if (!changes) {
        return 0;
    }
    observer_.on_tick(now_ns);
    LeavingSegments leaving;
    std::uint64_t unmapped = 0;
    /// True when what has been idle since *idle_since_ns goes; else it may be the first look at it.
    const auto goes = [&](std::uint64_t* idle_since_ns) {
        if (*idle_since_ns == never_seen) {
            *idle_since_ns = now_ns;
            return false;
        }
        return is_due(*idle_since_ns);
    };
    for (const bool small : {false, true}) {
        for_each_unused(small, [&](Segment& segment) {
            if (goes(&segment.idle_since_ns)) {
                forget(segment, leaving);
            }
        });
        for_each_free_pages(small, [&](const BlockStore::Pages& pages) {
            if (goes(&pages.block->idle.since_ns)) {
                unmapped += unmap(*pages.block, pages.begin, pages.bytes);
            }
        });
    }
    return unmapped + give_back(lock, leaving);
}

void Pool::Impl::make_room(std::uint64_t requested, Tag tag) {
    Lock lock(mutex_);
    const auto plan = policy_.plan(requested);
    // One event, one of the two: garbage is collected until there is none, and then there is room
    // to make in ranges.
    if (plan && !collect_garbage(lock, requested, tag) && policy_.options().expandable) {
        make_room_in_ranges(*plan, requested, tag);
    }
}

/// PyTorch's garbage collection: while more is reserved than the threshold, what has been unused
/// for longer than the average of all unused large segments goes back. Age is counted in
/// allocations. True when there was any.
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
    observer_.on_make_room(requested, tag);
    LeavingSegments leaving;
    std::uint64_t reclaimed = 0;
    while (reclaimed < target && count != 0) {
        // The average is fixed for one sweep, and one sweep is always finished.
        const std::uint64_t sweep_age = total_age;
        const std::uint64_t sweep_count = count;
        for_each_unused(false, [&](const Segment& segment) {
            const std::uint64_t age = now - segment.unused_since;
            if (age * sweep_count >= sweep_age) {
                total_age -= age;
                --count;
                reclaimed += segment.size;
                forget(segment, leaving);
            }
        });
    }
    give_back(lock, leaving);
    return true;
}

void Pool::Impl::abandon() {
    const Lock lock(mutex_);
    ++epoch_;
    pending_.forget_all();
    streams_ = std::vector<StreamFrees>();
    deferred_.forget_all();
    store_.clear();
    for (StatByPool* stat :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
          &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
          &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
        drop_all(*stat);
    }
    drop_all(stats_.oversize_allocations);
    drop_all(stats_.oversize_segments);
    settled_.notify_all();
}

[[gnu::hot]] void Pool::Impl::count_split(bool small) {
    const BlockStore::SplitFree now = store_.split_free(small);
    bring_to(stats_.inactive_split, small, now.blocks);
    bring_to(stats_.inactive_split_bytes, small, now.bytes);
}

// --- questions ----------------------------------------------------------------------------------

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
            // Freed in a stream's order it is there until that stream comes to the free.
            return within && block->behind != 0 && !block->waited_for &&
                           backend_.fence_query(block->use.fence) == FenceState::pending
                       ? Reach::inside
                       : Reach::outside;
        case BlockState::deferred:
            return within ? Reach::inside : Reach::outside;
        case BlockState::lost:
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
                block->behind != list) {
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
        problem = "the lists of frees hold others than the freed blocks";
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
            if (std::string problem = problem_of(each.name, stat, truth); !problem.empty()) {
                return problem;
            }
        }
    }
    if (std::string problem = problem_of("oversize_allocations", stats_.oversize_allocations,
                                         counted.oversize_allocations);
        !problem.empty()) {
        return problem;
    }
    return problem_of("oversize_segments", stats_.oversize_segments, counted.oversize_segments);
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

// --- the door ---------------------------------------------------------------------------------

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
    return impl_->free(address, tag, FenceTiming::now_host_goes_on, stream);
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

PoolStats Pool::stats() const {
    return impl_->stats();
}

bool Pool::settle(Address address) {
    return impl_->settle(address);
}

void Pool::release_for_retry(std::uint64_t requested, Tag tag) {
    impl_->release_for_retry(requested, tag);
}

void Pool::make_room(std::uint64_t requested, Tag tag) {
    impl_->make_room(requested, tag);
}

std::string Pool::validate() const {
    return impl_->validate();
}

}  // namespace memlab::allocator
