// The state machines of the pool: how an allocation finds memory (pool_allocations.cpp), how the
// pool grows (pool_growth.cpp), how a freed block becomes reusable (pool_frees.cpp), what goes back
// to the device (pool_cache.cpp), by age (pool_trim.cpp), and what threads wait for
// (pool_waits.cpp). BlockStore does the placement, SizePolicy the sizes.
//
// Waiting without the lock: a thread that waits on the host for a block's fence marks the block
// `waited_for`, and from then on only that thread retires it, so block and fence stay valid without
// reference counts. Other threads that need the block wait for that thread (retired_), which is
// equivalent to waiting for the fence. abandon() may drop everything during the wait; a changed
// epoch_ shows it. forget_left_wait() leaves the block to all when its thread jumped out of the
// wait.
//
// Getting memory without the lock: a growth is decided, its memory fetched without the lock, and
// the decision made once more before the memory becomes the pool's. So the events of other threads,
// which happened meanwhile, precede it in the recording as if it had begun after them. Growing one
// at a time (growing_) keeps it so for threads that grow at once.
//
// Giving memory back without the lock: from the decision on pages are a hole of their range, and a
// segment is gone; they are in a list (unmappings_) until the device has them. A growth waits
// before it maps memory to such pages, and one for which the device has none waits and asks again.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "allocator/adaptive_mutex.hpp"
#include "allocator/block_list.hpp"
#include "allocator/block_store.hpp"
#include "allocator/pool.hpp"
#include "allocator/size_policy.hpp"
#include "allocator/stat_counters.hpp"
#include "threads/mutex.hpp"

namespace memlab::allocator {

/// For the pool's own bookkeeping.
inline constexpr BackendStatus no_host_memory{BackendStatus::Kind::error, out_of_memory_code};

inline BlockInfo describe(const Block& block) {
    return {block.address,       block.use.requested, block.size,
            block.segment->base, block.segment->size, block.use.id};
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

class Pool::Impl {
  public:
    Impl(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer);

    AllocResult allocate(std::uint64_t requested, Tag tag);
    FreeResult free(Address address, Tag tag, FenceTiming timing, StreamId stream);
    void forget_stream(StreamId stream);
    void fence_deferred();
    std::optional<BlockInfo> find(Address address) const;
    std::optional<BlockInfo> try_find(Address address, bool* busy) const;
    bool owns(Address address) const;
    Reach reach(Address address, std::uint64_t bytes);
    std::uint64_t release_cached(bool wait);
    std::uint64_t reclaimable();
    std::uint64_t tick(std::uint64_t now_ns, bool* more);
    std::uint64_t next_tick() const;
    void release_some();
    void abandon();
    void forget_left_wait();
    PoolStats stats() const;
    bool retire(Address address);
    void release_for_retry(std::uint64_t requested, Tag tag);
    void reclaim(std::uint64_t requested, Tag tag);
    std::string validate() const;

  private:
    using Lock = threads::LockGuard<AdaptiveMutex>;

    AllocResult serve(Block& block, std::uint64_t requested, Tag tag) MEMLAB_REQUIRES(mutex_);
    AllocResult refuse(BackendStatus status, std::uint64_t largest_free_block)
        MEMLAB_REQUIRES(mutex_);
    /// Memory that the device has given and that is not the pool's, yet or any more.
    struct Fresh {
        Address begin = 0;
        std::uint64_t bytes = 0;  ///< 0: none
        bool mapped = false;      ///< pages of a range; else a segment
    };
    struct Attempt {
        Block* block = nullptr;
        BackendStatus status;
        Fresh surplus;  ///< to be given back once the block is served, still in the turn to grow
        Fresh range{};  ///< the addresses that go with it
    };
    /// What a growth for a request would be.
    struct GrowthPlan {
        BlockStore::Growth at;  ///< its hole is null: in a new range, or a segment
        Area area = Area::large;
        std::uint64_t size = 0;  ///< the block's
        std::uint64_t bytes = 0;
    };
    /// The free block that a request gets, and the size it is cut to.
    struct Fit {
        Block* block = nullptr;  ///< null: none
        std::uint64_t size = 0;
    };
    Attempt take_or_grow(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag, Fit fit)
        MEMLAB_MAY_UNLOCK(mutex_);
    Fit find_fit(const SizePolicy::Plan& plan) const MEMLAB_REQUIRES(mutex_);
    bool has_exact_fit(const SizePolicy::Plan& plan, const Fit& fit) const MEMLAB_REQUIRES(mutex_);
    Block* take(const Fit& fit) MEMLAB_REQUIRES(mutex_);
    bool fits(const Block& block, const SizePolicy::Plan& plan) const MEMLAB_REQUIRES(mutex_);
    GrowthPlan plan_growth(const SizePolicy::Plan& plan) const MEMLAB_REQUIRES(mutex_);
    Attempt grow(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag)
        MEMLAB_MAY_UNLOCK(mutex_);
    Attempt grow_in_turn(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag,
                         Fresh* range) MEMLAB_MAY_UNLOCK(mutex_);
    void remove_if_empty(Fresh& range) MEMLAB_REQUIRES(mutex_);
    void release(const Fresh& range) MEMLAB_MAY_UNLOCK(mutex_);
    bool give_way(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag)
        MEMLAB_MAY_UNLOCK(mutex_);
    /// Makes a call of the backend without the lock, or, if `keep_lock`, with it. False if the
    /// context was abandoned meanwhile.
    template <typename Call>
    bool without_lock(bool keep_lock, const Call& call) MEMLAB_MAY_UNLOCK(mutex_) {
        if (keep_lock) {
            call();
            return true;
        }
        const std::uint64_t epoch = epoch_;
        mutex_.unlock();
        call();
        mutex_.lock();
        return epoch_ == epoch;
    }
    BackendStatus obtain(const SizePolicy::Plan& plan, const GrowthPlan& growth, bool keep_lock,
                         Fresh* fresh) MEMLAB_MAY_UNLOCK(mutex_);
    std::uint64_t segment_bytes(const SizePolicy::Plan& plan) const MEMLAB_REQUIRES(mutex_);
    bool is_wanted(const SizePolicy::Plan& plan, const GrowthPlan& growth, const Fresh& fresh) const
        MEMLAB_REQUIRES(mutex_);
    Attempt adopt(const SizePolicy::Plan& plan, const GrowthPlan& growth, Fresh& fresh, Tag tag)
        MEMLAB_REQUIRES(mutex_);
    void give_back(const Fresh& fresh) MEMLAB_MAY_UNLOCK(mutex_);
    bool may_fit(const SizePolicy::Plan& plan) MEMLAB_REQUIRES(mutex_);
    bool has_unused() const MEMLAB_REQUIRES(mutex_);
    bool order_device_behind(const SizePolicy::Plan& plan) MEMLAB_MAY_UNLOCK(mutex_);
    std::uint64_t count_reclaimable(bool keep_lock) MEMLAB_MAY_UNLOCK(mutex_);
    std::uint64_t changes() const MEMLAB_REQUIRES(mutex_);

    /// Stream-ordered frees that are pending behind one stream's work.
    struct StreamFrees {
        StreamId stream;
        BlockList blocks;
    };

    /// Calls visit(Block&) for each block of pending_ or deferred_ that is in it now, the oldest
    /// first, until it returns true; unless `keep_lock`, lets others have their turn from time to
    /// time: what they retire meanwhile is passed over.
    template <typename Visit>
    void visit_in_parts(const BlockList& list, bool keep_lock, const Visit& visit)
        MEMLAB_MAY_UNLOCK(mutex_) {
        constexpr std::size_t visited_per_hold = 1024;
        const BlockState state = &list == &deferred_ ? BlockState::deferred : BlockState::pending;
        const std::uint64_t end = &list == &deferred_ ? frees_deferred_ : fences_recorded_;
        const std::uint64_t epoch = epoch_;
        std::size_t visited = 0;
        for (Block* block = list.oldest(); block != nullptr && block->use.order < end;) {
            if (visit(*block)) {
                return;
            }
            block = block->use.list_next;
            if (keep_lock || block == nullptr || ++visited % visited_per_hold != 0) {
                continue;
            }
            const std::uint64_t order = block->use.order;
            let_others_in();
            if (epoch_ != epoch) {
                return;
            }
            // The slab of the block is kept, whatever it is now.
            if (block->state != state || block->use.order != order ||
                (state == BlockState::pending && block->list != 0)) {
                block = list.oldest();
                while (block != nullptr && block->use.order < order) {
                    block = block->use.list_next;
                }
            }
        }
    }
    std::optional<BlockInfo> find_locked(Address address) const MEMLAB_REQUIRES(mutex_);
    Block* find_live(Address address, FreeResult::Kind* why_not) MEMLAB_REQUIRES(mutex_);
    FreeResult defer(Block& block, Tag tag, BackendStatus status) MEMLAB_REQUIRES(mutex_);
    void count_free(const Block& block) MEMLAB_REQUIRES(mutex_);
    std::uint32_t stream_list(StreamId stream) MEMLAB_REQUIRES(mutex_);
    BlockList& pending_list(const Block& block) MEMLAB_REQUIRES(mutex_) {
        return block.list == 0 ? pending_ : streams_[block.list - 1].blocks;
    }
    /// Whether any freed block is not free yet.
    bool any_pending() const MEMLAB_REQUIRES(mutex_) {
        return counters_.current(Counter::active) != counters_.current(Counter::allocation);
    }
    void enqueue_pending(Block& block, Fence fence, std::uint32_t list) MEMLAB_REQUIRES(mutex_);
    void retire(Block& block, FenceState state) MEMLAB_REQUIRES(mutex_);
    bool frees_immediately(FreeSync sync) const MEMLAB_REQUIRES(mutex_);
    bool host_may_continue(Block& block) MEMLAB_MAY_UNLOCK(mutex_);
    std::uint64_t begin_wait(Block& block) MEMLAB_RELEASE(mutex_);
    bool end_wait(Block& block, std::uint64_t epoch) MEMLAB_ACQUIRE(mutex_);
    void wait_for_change() MEMLAB_MAY_UNLOCK(mutex_);
    void notify_change() MEMLAB_REQUIRES(mutex_);
    void begin_busy(bool& busy) MEMLAB_REQUIRES(mutex_);
    void end_busy(bool& busy) MEMLAB_REQUIRES(mutex_);
    void complete(Block& block) MEMLAB_REQUIRES(mutex_);
    void free_block(Block& block) MEMLAB_REQUIRES(mutex_);
    /// How far retiring all completed frees has come.
    struct Retiring {
        std::size_t list = 0;  ///< pending_, then those of streams_
        std::size_t step = 1;
        std::uint64_t end;      ///< frees from this order on came later
        std::uint64_t pending;  ///< fences of this list from this order on are known to be pending
    };
    Fit poll_pending(const SizePolicy::Plan& plan) MEMLAB_MAY_UNLOCK(mutex_);
    void retire_recent() MEMLAB_REQUIRES(mutex_);
    Retiring begin_retiring() const MEMLAB_REQUIRES(mutex_);
    bool retire_some(Retiring& at) MEMLAB_REQUIRES(mutex_);
    void retire_completed() MEMLAB_MAY_UNLOCK(mutex_);
    void let_others_in() MEMLAB_MAY_UNLOCK(mutex_);
    static Block* oldest_unwaited(const BlockList& list);
    std::size_t retire_through(Block& last) MEMLAB_REQUIRES(mutex_);
    /// Frees that one hold of the lock retires, at most, and driver calls that it makes for it.
    static constexpr std::size_t retired_per_hold = 128;
    static constexpr unsigned calls_per_hold = 8;
    struct HostWait {
        BackendStatus status;
        bool retired = false;
    };
    HostWait wait_for(Block& block) MEMLAB_MAY_UNLOCK(mutex_);
    bool wait_for_all_pending() MEMLAB_MAY_UNLOCK(mutex_);
    void wait_for_all_deferred() MEMLAB_MAY_UNLOCK(mutex_);

    void prepare_retry(std::uint64_t requested, Tag tag) MEMLAB_MAY_UNLOCK(mutex_);
    std::uint64_t release_all_unused() MEMLAB_MAY_UNLOCK(mutex_);

    /// Places and segments that a thread gives back.
    struct Unmapping {
        struct Place {
            Address begin;
            std::uint64_t bytes;
            std::uint64_t piece;  ///< bytes to unmap in one call
        };
        static constexpr unsigned capacity = 8;
        bool in_use = false;
        unsigned count = 0;
        std::array<Place, capacity> places;
        std::uint64_t segment_bytes = 0;  ///< of detached segments
    };
    std::uint64_t release_unused(Unmapping& unmapping, bool* more) MEMLAB_MAY_UNLOCK(mutex_);
    bool retry(std::uint64_t requested, Tag tag) MEMLAB_MAY_UNLOCK(mutex_);
    Unmapping& begin_unmapping() MEMLAB_MAY_UNLOCK(mutex_);
    Unmapping* free_unmapping() MEMLAB_REQUIRES(mutex_);
    bool may_unmap_more(Unmapping& unmapping, std::uint64_t* taken) MEMLAB_MAY_UNLOCK(mutex_);
    bool unmap(Unmapping& unmapping, const BlockStore::Pages& pages) MEMLAB_REQUIRES(mutex_);
    std::uint64_t unmap_now(Unmapping& unmapping, bool keep_lock = false) MEMLAB_MAY_UNLOCK(mutex_);
    void end_unmapping(Unmapping& unmapping) MEMLAB_REQUIRES(mutex_);
    bool is_unmapping(Address begin, std::uint64_t bytes) const MEMLAB_REQUIRES(mutex_);
    bool any_unmapping() const MEMLAB_REQUIRES(mutex_);

    bool collect_garbage(std::uint64_t requested, Tag tag) MEMLAB_MAY_UNLOCK(mutex_);
    void detach_segment(const Segment& segment, Unmapping& unmapping, ReleasedSegments& released)
        MEMLAB_REQUIRES(mutex_);
    std::uint64_t release_segments(Unmapping& unmapping, const ReleasedSegments& released)
        MEMLAB_MAY_UNLOCK(mutex_);
    /// Detaches unused segments, the oldest first, as long as wanted(segment) is true. False: not
    /// all of them, since as many have been detached as one hold may.
    template <typename Wanted>
    bool detach_unused(Area area, Unmapping& unmapping, ReleasedSegments& released,
                       const Wanted& wanted) MEMLAB_REQUIRES(mutex_) {
        if (policy_.options().segments_per_hold == PoolOptions::no_limit) {
            detach_all_unused(area, unmapping, released, wanted);
            return true;
        }
        for (;;) {
            Segment* const segment = store_.oldest_segment(area);
            if (segment == nullptr || !wanted(*segment)) {
                return true;
            }
            if (released.size() >= policy_.options().segments_per_hold) {
                return false;
            }
            detach_segment(*segment, unmapping, released);
        }
    }
    /// As pools did it before they had a limit, for replays: by (size, address). May throw
    /// std::bad_alloc.
    template <typename Wanted>
    void detach_all_unused(Area area, Unmapping& unmapping, ReleasedSegments& released,
                           const Wanted& wanted) MEMLAB_REQUIRES(mutex_) {
        std::vector<Segment*> all;
        for (Segment* each = store_.oldest_segment(area); each != nullptr;
             each = each->unused_links.right) {
            if (wanted(*each)) {
                all.push_back(each);
            }
        }
        std::sort(all.begin(), all.end(), [](const Segment* a, const Segment* b) {
            return std::pair(a->size, a->base) < std::pair(b->size, b->base);
        });
        for (Segment* const each : all) {
            detach_segment(*each, unmapping, released);
        }
    }
    /// Unmaps the whole chunks of the free blocks in packed ranges for which wanted(block) is true,
    /// by (capacity, address), as long as unmap_pages(pages) returns true.
    template <typename Wanted, typename UnmapPages>
    void unmap_free_pages(Area area, const Wanted& wanted, const UnmapPages& unmap_pages)
        MEMLAB_MAY_UNLOCK(mutex_) {
        std::uint64_t capacity = 0;
        Address address = 0;
        for (;;) {
            const BlockStore::Pages pages = store_.find_pages(area, capacity, address, wanted);
            if (pages.bytes == 0) {
                return;
            }
            capacity = pages.block->idle.capacity;
            address = pages.block->address + 1;
            if (!unmap_pages(pages)) {
                return;
            }
        }
    }
    std::uint64_t due_at(std::uint64_t idle_since_ns) const MEMLAB_REQUIRES(mutex_);
    void begin_trim(std::uint64_t now_ns) MEMLAB_REQUIRES(mutex_);
    bool reclaim_pages(const SizePolicy::Plan& plan, std::uint64_t requested, Tag tag)
        MEMLAB_MAY_UNLOCK(mutex_);
    void count_split(const Segment& changed) MEMLAB_REQUIRES(mutex_);
    std::string validate_frees() const MEMLAB_REQUIRES(mutex_);
    std::string validate_trim() const MEMLAB_REQUIRES(mutex_);
    std::string validate_stats() const MEMLAB_REQUIRES(mutex_);

    const SizePolicy policy_;
    DeviceBackend& backend_;
    NullObserver null_observer_;
    PoolObserver& observer_;

    const std::uint64_t garbage_limit_;  ///< collect_garbage() keeps reserved_bytes below this
    const std::uint64_t packed_limit_;   ///< of BlockStore::packed_bytes()
    std::uint64_t trim_delay_ns_ MEMLAB_GUARDED_BY(mutex_);
    /// No tick before this frees what earlier ones saw idle.
    std::uint64_t next_trim_ns_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// The last tick that freed memory.
    std::uint64_t trimmed_at_ns_ MEMLAB_GUARDED_BY(mutex_) = never_seen;

    // In a cache line with what hardly ever changes: threads that wait for the lock look at it.
    alignas(64) mutable AdaptiveMutex mutex_;
    unsigned waiting_for_change_ MEMLAB_GUARDED_BY(mutex_) = 0;
    threads::Mutex changed_mutex_;  ///< held to wait for changed_ and to signal it; taken last
    /// How often a thread has given memory back.
    std::uint64_t gone_back_ MEMLAB_GUARDED_BY(mutex_) = 0;

    alignas(64) BlockStore store_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t next_id_ MEMLAB_GUARDED_BY(mutex_) = 0;
    std::uint64_t ids_end_ MEMLAB_GUARDED_BY(mutex_) = 0;
    static constexpr std::uint64_t id_batch = 1024;
    std::uint64_t fences_recorded_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// Behind all work, in the order in which the fences were recorded.
    BlockList pending_ MEMLAB_GUARDED_BY(mutex_);
    /// The same per stream; entries are never erased.
    std::vector<StreamFrees> streams_ MEMLAB_GUARDED_BY(mutex_);
    /// No fence yet, in the order of the frees.
    BlockList deferred_ MEMLAB_GUARDED_BY(mutex_);
    std::uint64_t frees_deferred_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// Size of pending_ after the last poll.
    std::size_t last_pending_count_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// Number of abandon() calls.
    std::uint64_t epoch_ MEMLAB_GUARDED_BY(mutex_) = 0;
    /// Small allocations that skipped polling since the last poll.
    unsigned small_polls_skipped_ MEMLAB_GUARDED_BY(mutex_) = 0;
    bool grown_since_trim_ MEMLAB_GUARDED_BY(mutex_) = false;
    bool ranges_unavailable_ MEMLAB_GUARDED_BY(mutex_) = false;
    /// A thread gets memory for the pool.
    bool growing_ MEMLAB_GUARDED_BY(mutex_) = false;
    /// Each a thread's that gives memory back.
    std::array<Unmapping, 16> unmappings_ MEMLAB_GUARDED_BY(mutex_){};
    StatCounters counters_ MEMLAB_GUARDED_BY(mutex_);
    WholePoolStats stats_ MEMLAB_GUARDED_BY(mutex_);
    /// Signalled when a thread no longer waits for a block, grows or gives memory back.
    threads::ConditionVariable changed_;
};

}  // namespace memlab::allocator
