// The caching pool: one per context, the best-fit/split/coalesce policy of PyTorch's caching
// allocator (c10/cuda/CUDACachingAllocator.cpp) over segments from a DeviceBackend.
//
// Guarantees:
//  - two live blocks never overlap; a block is reused only when the fence of its free is complete,
//    or future device work has been ordered behind that fence;
//  - a block whose fence failed is never reused;
//  - a failed allocation leaves the pool unchanged, except that cached segments may be freed;
//  - what reclaimable() counts can be allocated in one piece, together with what the device has;
//  - deterministic: the same calls with the same results of the backend give the same addresses
//    relative to their segments, in the same order; no clock, no randomness, no addresses hashed;
//  - the calls to an observer suffice to repeat the run from one thread and without a device (see
//    "Replay" at PoolObserver).
//
// How frees become reusable (PoolOptions::free_sync says when the host waits):
//   free -> [deferred, while a capture forbids fences] -> pending behind its fence -> free block,
// by polling the fence (in allocate), by a host wait, or by ordering the device behind it:
// immediately where the backend reports that order (ordered_behind), else when memory is short.
// Pending blocks are in one list for fences behind all work and one per stream for stream-ordered
// fences, since fences complete in order only within a list. The device is only ever ordered behind
// the first kind.
//
// Locking: one mutex per pool (adaptive_mutex.hpp). The observer and the backend are called with it
// held, except for calls that may take long, during which other threads use the pool: waits for the
// device, and all that get memory or give it back. One thread at a time grows the pool; the memory
// that it allocated is added only if the pool would still allocate exactly that, else it is freed.
// While the mutex is held at most PoolOptions::unmaps_per_hold ranges are unmapped,
// segments_per_hold segments removed, 128 completed frees retired, 1,024 pending ones looked at and
// eight fences asked for: then other threads have their turn.
//
// Depends on no CUDA, files, clocks or stacks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allocator/backend.hpp"
#include "allocator/pool_options.hpp"
#include "allocator/pool_stats.hpp"

namespace memlab::allocator {

/// An opaque word passed through to the observer (the recorder's call site).
using Tag = std::uint64_t;

/// The block that serves one allocation.
struct BlockInfo {
    Address address = 0;
    std::uint64_t requested = 0;  ///< what the application asked for
    std::uint64_t size = 0;       ///< requested, rounded: the `allocated` bytes
    Address segment = 0;          ///< the base of its segment
    std::uint64_t segment_size = 0;
    std::uint64_t id = 0;  ///< unique in the process, never reused: serves as a CUDA buffer id
};

/// Called for every change, in order, with the pool's lock held: must be quick and must not call
/// the pool or the backend. An alloc is reported after the block is taken, a free before the block
/// can be reused, a cause before its effects.
///
/// Replay: another pool with the same options, driven by these calls in this order, makes the same
/// calls to its own observer, in the same order:
///   on_alloc           -> allocate(requested, tag)
///   on_free_requested  -> free(address, tag, FenceTiming::deferred)
///   on_free_completed  -> retire(address)
///   on_freed           -> both
///   on_alloc_retry     -> release_for_retry(requested, tag)
///   on_reclaim         -> reclaim(requested, tag)
///   on_empty_cache     -> release_some()
///   on_tick            -> tick(now_ns)
///   on_segment_alloc, on_segment_map -> no call: the backend's result in the next on_alloc
///   on_segment_free, on_segment_unmap, on_sync -> no call: effects of the others
/// abandon() has no event; its caller has to record it. Ids differ, and on_sync is not repeated.
class PoolObserver {
  public:
    PoolObserver() = default;
    PoolObserver(const PoolObserver&) = delete;
    PoolObserver& operator=(const PoolObserver&) = delete;
    virtual ~PoolObserver() = default;

    virtual void on_alloc(const BlockInfo& block, Tag tag) = 0;
    virtual void on_free_requested(const BlockInfo& block, Tag tag) = 0;
    /// Called before the block is coalesced. Never called for a block whose fence failed.
    virtual void on_free_completed(const BlockInfo& block) = 0;
    /// A free that completed immediately; replaces the two calls above.
    virtual void on_freed(const BlockInfo& block, Tag tag) {
        on_free_requested(block, tag);
        on_free_completed(block);
    }
    /// `tag` is that of the allocation that made the pool grow (0: none).
    virtual void on_segment_alloc(Address segment, std::uint64_t size, Tag tag) = 0;
    /// Called before the backend frees it, since the addresses may then be reused at any time.
    virtual void on_segment_free(Address segment, std::uint64_t size) = 0;
    /// `bytes` of an expandable range at `address` have been mapped; `tag` as in on_segment_alloc.
    virtual void on_segment_map(Address address, std::uint64_t bytes, Tag tag) = 0;
    /// Called before the backend unmaps that memory.
    virtual void on_segment_unmap(Address address, std::uint64_t bytes) = 0;
    /// Out of memory: the pool is about to free all unused memory and to retry the allocation.
    virtual void on_alloc_retry(std::uint64_t requested, Tag tag) = 0;
    /// The pool is about to free some unused memory before it grows for this allocation, as its
    /// options demand (garbage collection, expandable ranges).
    virtual void on_reclaim(std::uint64_t requested, Tag tag) = 0;
    /// The pool is about to free what is unused, or a part of that (PoolOptions::unmaps_per_hold,
    /// segments_per_hold): after release_cached() has waited, and after on_alloc_retry for what
    /// that left.
    virtual void on_empty_cache() = 0;
    /// tick(now_ns) was called and has an effect.
    virtual void on_tick(std::uint64_t now_ns) = 0;
    /// The host waits for all pending frees. As in PyTorch, also called when there are none.
    virtual void on_sync() = 0;
};

struct AllocResult {
    BackendStatus status;
    BlockInfo block;  ///< valid when status.ok()
    /// On out_of_memory: the largest request that the pool could have served, before cached
    /// segments were released.
    std::uint64_t largest_free_block = 0;
};

struct FreeResult {
    enum class Kind : std::uint8_t {
        freed,
        not_ours,  ///< in none of the pool's segments: pass it to the driver
        invalid,   ///< inside a segment, but no live block begins there (interior or double free)
        refused,   ///< the backend failed to record a fence; the block stays allocated
    };
    Kind kind = Kind::freed;
    /// With refused: the reason. With freed: the device's pending asynchronous error where the free
    /// synchronized, or why no fence could be recorded yet (not_now: the block is deferred until
    /// fence_deferred()); else ok.
    BackendStatus status;
};

/// When the fence of a free may be recorded, and whether the host may wait for it.
enum class FenceTiming : std::uint8_t {
    now,               ///< the host waits as PoolOptions::free_sync says
    now_without_wait,  ///< as with FreeSync::never
    deferred,          ///< not yet (a capture is under way), but in fence_deferred()
};

/// Thread-safety: every member function may be called from any thread at any time.
class Pool {
  public:
    /// `backend` and `observer` (may be null) must outlive the pool; problem_with(options) must be
    /// empty. The only member that may throw, and only std::bad_alloc.
    Pool(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer);
    /// Calls neither backend nor observer: segments and pending fences are left to the backend.
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    /// Allocates `requested` bytes (0 counts as 1): from a free block, else from a new segment.
    /// When the backend is out of memory it tries, in this order: a pending block, with the
    /// device's future work ordered behind its fence; a free block, after a host wait for all
    /// pending frees; a new segment, after releasing every unused one. Then it returns the
    /// backend's own error; immediately where all that is unused, together with what the device
    /// has, would not suffice.
    AllocResult allocate(std::uint64_t requested, Tag tag);

    /// Frees a block: records a fence and, depending on `timing` and PoolOptions::free_sync, may
    /// wait for it without the lock. Never allocates host memory.
    FreeResult free(Address address, Tag tag, FenceTiming timing = FenceTiming::now);

    /// Stream-ordered free, as cudaFreeAsync: the fence is behind that stream's work only, the host
    /// does not wait, and no other work is ever ordered behind it.
    FreeResult free_in(StreamId stream, Address address, Tag tag);

    /// The stream was destroyed, and its id may be reused (0: all streams).
    void forget_stream(StreamId stream);

    /// Records the fences of all deferred frees. Stops at the first failure; the rest stays
    /// deferred.
    void fence_deferred();

    /// The live block that contains `address` (not only its base).
    std::optional<BlockInfo> find(Address address) const;

    /// The same without blocking: sets *busy, and finds nothing, while the pool's lock is held.
    std::optional<BlockInfo> try_find(Address address, bool* busy) const;

    /// True when `address` is in one of the segments, live block or not.
    bool owns(Address address) const;

    /// Whether copies and fills may access [address, address + bytes). Plain CUDA rejects accesses
    /// beyond the requested bytes and to freed memory.
    enum class Reach : std::uint8_t {
        not_ours,  ///< begins in none of the pool's segments
        inside,    ///< within a live block's requested bytes, or in a stream-ordered free to come
        outside,
    };
    Reach reach(Address address, std::uint64_t bytes);

    /// Frees every wholly unused segment; returns the bytes that the backend took back. With `wait`
    /// first waits for pending and deferred frees, except the stream-ordered ones.
    std::uint64_t release_cached(bool wait);

    /// The bytes that would go back to the device if all did that the program has freed: what plain
    /// CUDA counts as free. Includes frees whose fence is not complete, and deferred ones; without
    /// the stream-ordered ones that are pending.
    std::uint64_t reclaimable();

    /// Advances the pool's clock to `now_ns` (any epoch) and frees what has been unused since a
    /// tick at least PoolOptions::trim_after_ns earlier. Returns the bytes that the backend took
    /// back. *more (may be null): not all of it, call again. The pool has no other source of time.
    std::uint64_t tick(std::uint64_t now_ns, bool* more = nullptr);

    /// From when on tick() has something to do, if the pool is not called before: 0 while frees are
    /// not complete or the next tick has to look what is unused, `no_tick` where nothing is held
    /// that tick() could free.
    std::uint64_t next_tick() const;
    static constexpr std::uint64_t no_tick = ~std::uint64_t{0};

    /// The context was destroyed: drops everything without calling the backend or the observer, and
    /// frees the host memory. The statistics count what was there as freed.
    void abandon();

    /// The calling thread is in no call of the pool's: if it left one by a jump (siglongjmp) out of
    /// a wait for a block's fence, that block is any thread's to retire again; if out of a call
    /// that gets or gives back memory, others may do so again. A jump out of anything else leaves
    /// the pool locked.
    void forget_left_wait();

    PoolStats stats() const;

    /// For replay only. Treats the fence of this freed block as complete, independently of earlier
    /// frees. False when there is no such block.
    bool retire(Address address);

    /// For replay only. What release_cached() does after each on_empty_cache.
    void release_some();

    /// For replay only. What allocate() does after on_alloc_retry.
    void release_for_retry(std::uint64_t requested, Tag tag);

    /// For replay only. What allocate() frees after each on_reclaim.
    void reclaim(std::uint64_t requested, Tag tag);

    /// Checks every invariant; empty when all hold, else what is wrong. For tests and debugging:
    /// O(blocks).
    std::string validate() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::allocator
