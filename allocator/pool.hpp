// The caching pool: one per context, the best-fit/split/coalesce policy of PyTorch's caching
// allocator (c10/cuda/CUDACachingAllocator.cpp) over segments from a DeviceBackend.
//
// Guarantees:
//  - two live blocks never overlap; a block is handed out again only when the fence of its free is
//    complete, or future device work has been ordered behind that fence;
//  - a block whose fence failed is never handed out again;
//  - a failed allocation leaves the pool as it was, but for cached segments given back;
//  - deterministic: the same calls and the same answers of the backend give the same addresses
//    relative to their segments, in the same order; no clock, no randomness, no addresses hashed;
//  - what an observer is told is enough to do it all again, from one thread and without a device
//    (see "Replay" at PoolObserver).
//
// How frees become reusable (PoolOptions::free_sync says when the host waits):
//   free -> [deferred, while a capture forbids fences] -> pending behind its fence -> free block,
// by a look at the fence (every allocate), by a host wait, or by ordering the device behind it: at
// once where the backend knows it to be (ordered_behind), else when memory is short. What is
// pending is listed by what its fence stands behind, all work or one stream's, since fences
// complete in their order only there; the device is never ordered behind one stream's.
//
// Locking: one mutex per pool. The observer and the backend are called with it held, but for what
// may take long: fence_wait_host and segment_free (and caller_needs_host_wait), during which other
// threads use the pool.
//
// Knows bytes, fences and policy; no CUDA, files, clocks or stacks.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "allocator/backend.hpp"
#include "allocator/pool_options.hpp"
#include "allocator/pool_stats.hpp"

namespace memlab::allocator {

/// What the caller wants to find again in the observer: an opaque word (the recorder's call site).
using Tag = std::uint64_t;

/// A range that serves one allocation.
struct BlockInfo {
    Address address = 0;
    std::uint64_t requested = 0;  ///< what the application asked for
    std::uint64_t size = 0;       ///< requested, rounded: the `allocated` bytes
    Address segment = 0;          ///< the base of the segment that holds it
    std::uint64_t segment_size = 0;
    std::uint64_t id = 0;  ///< unique in the process, never reused: serves as a CUDA buffer id
};

/// Told of every change, in order, with the pool's lock held: must be quick, must not call the pool
/// or the backend. Order is the recording's order: an alloc is told after the block is ours, a free
/// before anyone else can get it, a cause before its effects.
///
/// Replay: another pool with the same options, driven by these calls in their order, makes the same
/// calls to its own observer, in the same order:
///   on_alloc           -> allocate(requested, tag)
///   on_free_requested  -> free(address, tag, FenceTiming::deferred)
///   on_free_completed  -> settle(address)
///   on_freed           -> both
///   on_alloc_retry     -> release_for_retry(requested, tag)
///   on_make_room       -> make_room(requested, tag)
///   on_empty_cache     -> release_cached(false)
///   on_tick            -> tick(now_ns)
///   on_segment_alloc, on_segment_map -> no call: what the backend answers in the on_alloc next
///   on_segment_free, on_segment_unmap, on_sync -> nothing: the effects of the others
/// abandon() has no event: whoever calls it knows. Ids are new, and on_sync is not told.
class PoolObserver {
  public:
    PoolObserver() = default;
    PoolObserver(const PoolObserver&) = delete;
    PoolObserver& operator=(const PoolObserver&) = delete;
    virtual ~PoolObserver() = default;

    virtual void on_alloc(const BlockInfo& block, Tag tag) = 0;
    virtual void on_free_requested(const BlockInfo& block, Tag tag) = 0;
    /// Told before the block is merged with its neighbours. Never follows for a block whose fence
    /// failed.
    virtual void on_free_completed(const BlockInfo& block) = 0;
    /// A free that was complete at once, told instead of the two.
    virtual void on_freed(const BlockInfo& block, Tag tag) {
        on_free_requested(block, tag);
        on_free_completed(block);
    }
    /// `tag` is that of the allocation that made the pool grow (0: none).
    virtual void on_segment_alloc(Address segment, std::uint64_t size, Tag tag) = 0;
    /// Told before the backend gets it, which may give it to someone else at once.
    virtual void on_segment_free(Address segment, std::uint64_t size) = 0;
    /// `bytes` of an expandable range at `address` have memory now; `tag` as in on_segment_alloc.
    virtual void on_segment_map(Address address, std::uint64_t bytes, Tag tag) = 0;
    /// Told before the backend takes that memory away.
    virtual void on_segment_unmap(Address address, std::uint64_t bytes) = 0;
    /// Out of memory: what is unused will be given back now, and the allocation tried once more.
    virtual void on_alloc_retry(std::uint64_t requested, Tag tag) = 0;
    /// Before it grows for this allocation the pool will give some unused memory back now, as its
    /// options ask.
    virtual void on_make_room(std::uint64_t requested, Tag tag) = 0;
    /// release_cached() will give back what is unused now; its wait is over.
    virtual void on_empty_cache() = 0;
    /// Time has passed as far as `now_ns`, and that changes something.
    virtual void on_tick(std::uint64_t now_ns) = 0;
    /// The pool makes sure on the host that all pending frees are complete. As in PyTorch also told
    /// when there was nothing to wait for.
    virtual void on_sync() = 0;
};

struct AllocResult {
    BackendStatus status;
    BlockInfo block;  ///< valid when status.ok()
    /// On out_of_memory: the largest block that the pool could have served before cached segments
    /// were released.
    std::uint64_t largest_free_block = 0;
};

struct FreeResult {
    enum class Kind : std::uint8_t {
        freed,
        not_ours,  ///< in none of our segments: the driver's business
        invalid,   ///< inside a segment, but no live block begins there (interior or double free)
        refused,   ///< the backend refused a fence; the block is allocated as before
    };
    Kind kind = Kind::freed;
    /// With refused: why. With freed: the device's pending asynchronous error where the free
    /// synchronized, or why no fence could be recorded yet (not_now: the block then waits for
    /// fence_deferred()); else ok.
    BackendStatus status;
};

/// When the fence of a free may be recorded, and whether the host may wait for it.
enum class FenceTiming : std::uint8_t {
    now,               ///< the host waits as PoolOptions::free_sync says
    now_host_goes_on,  ///< as never of PoolOptions::free_sync
    deferred,          ///< not yet (a capture is under way): the block waits for fence_deferred()
};

/// Thread-safety: every member function may be called from any thread at any time.
class Pool {
  public:
    /// `backend` and `observer` (may be null) must outlive the pool; problem_with(options) must be
    /// empty. The only member that may throw, and only std::bad_alloc.
    Pool(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer);
    /// Calls neither backend nor observer: segments and unfinished fences are left to the backend.
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    /// Serves `requested` bytes (0 is served like 1). Prefers a free block, then a new segment.
    /// When the backend is out of memory: a pending block with the device's future work ordered
    /// behind its fence; then, having waited on the host for all pending frees, a free block; then
    /// it releases every unused segment, asks once more and returns the backend's own error.
    AllocResult allocate(std::uint64_t requested, Tag tag);

    /// Takes a block back: records a fence and, by `timing` and PoolOptions::free_sync, may wait
    /// for it without the lock. Never allocates host memory.
    FreeResult free(Address address, Tag tag, FenceTiming timing = FenceTiming::now);

    /// Takes a block back in the order of `stream`, as cudaFreeAsync: its fence is behind that
    /// stream's work alone, the host does not wait, and nothing is ever ordered behind it.
    FreeResult free_in(StreamId stream, Address address, Tag tag);

    /// The stream is gone, and its name may come to mean another (0: all of them).
    void forget_stream(StreamId stream);

    /// Records the fences of all frees that were deferred, and of those whose fence could not be
    /// recorded. Stops at the first failure; the rest stays deferred.
    void fence_deferred();

    /// The live block that contains `address` (not only its base).
    std::optional<BlockInfo> find(Address address) const;

    /// The same where the pool's lock is free; *busy when it is not, and nothing is known.
    std::optional<BlockInfo> try_find(Address address, bool* busy) const;

    /// True when `address` lies in one of the segments, live block or not.
    bool owns(Address address) const;

    /// What copies and fills of [address, address + bytes) meet. Plain CUDA refuses those that
    /// leave the bytes that were asked for, or touch what was freed.
    enum class Reach : std::uint8_t {
        not_ours,  ///< begins in none of our segments
        inside,    ///< within a live block's requested bytes, or what a stream has yet to free
        outside,
    };
    Reach reach(Address address, std::uint64_t bytes);

    /// Gives every wholly unused segment back to the backend; returns the bytes that it took back.
    /// Blocks whose fence is pending behind all work, and those that have none yet, are waited for
    /// first when `wait` is set.
    std::uint64_t release_cached(bool wait);

    /// Time has passed as far as `now_ns`, counted from anywhere: what has been unused since a tick
    /// at least PoolOptions::trim_after_ns earlier goes back to the backend. Returns the bytes that
    /// it took back. The only way in which time enters the pool.
    std::uint64_t tick(std::uint64_t now_ns);

    /// The context is gone: forget everything without calling the backend or the observer, and keep
    /// no host memory for it. The statistics count what was there as freed.
    void abandon();

    PoolStats stats() const;

    /// For replay; no live program calls it. The fence of this block, which was given back, is
    /// complete, whatever was given back before it. False when there is no such block.
    bool settle(Address address);

    /// For replay; no live program calls it. What allocate() does between two attempts to grow.
    void release_for_retry(std::uint64_t requested, Tag tag);

    /// For replay; no live program calls it. What allocate() gives back before it grows.
    void make_room(std::uint64_t requested, Tag tag);

    /// Walks every structure and checks every invariant; empty when sound, else what is wrong.
    /// For tests and debugging: O(blocks).
    std::string validate() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::allocator
