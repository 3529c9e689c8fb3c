// The caching pool: one per context, the best-fit/split/coalesce policy of PyTorch's caching
// allocator (c10/cuda/CUDACachingAllocator.cpp) over segments from a DeviceBackend.
//
// Guarantees:
//  - two live blocks never overlap; a block is handed out again only when the fence of its free is
//    complete, or future device work has been ordered behind that fence;
//  - a failed allocation leaves the pool as it was, but for cached segments given back;
//  - deterministic: the same calls and the same answers of the backend give the same addresses
//    relative to their segments, in the same order; no clock, no randomness, no addresses hashed.
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
/// before anyone else can get it.
class PoolObserver {
  public:
    PoolObserver() = default;
    PoolObserver(const PoolObserver&) = delete;
    PoolObserver& operator=(const PoolObserver&) = delete;
    virtual ~PoolObserver() = default;

    virtual void on_alloc(const BlockInfo& block, Tag tag) = 0;
    virtual void on_free_requested(const BlockInfo& block, Tag tag) = 0;
    virtual void on_free_completed(const BlockInfo& block) = 0;
    /// `tag` is that of the allocation that made the pool grow (0: none).
    virtual void on_segment_alloc(Address segment, std::uint64_t size, Tag tag) = 0;
    virtual void on_segment_free(Address segment, std::uint64_t size) = 0;
    /// Out of memory: the cache was released and the allocation will be tried once more.
    virtual void on_alloc_retry(std::uint64_t requested, Tag tag) = 0;
    /// The pool waits on the host for all pending frees.
    virtual void on_sync() = 0;
};

struct AllocResult {
    BackendStatus status;
    BlockInfo block;  ///< valid when status.ok()
    /// On out_of_memory: the largest free block before cached segments were released.
    std::uint64_t largest_free_block = 0;
};

struct FreeResult {
    enum class Kind : std::uint8_t {
        freed,
        not_ours,  ///< in none of our segments: the driver's business
        invalid,   ///< inside a segment, but no live block begins there (interior or double free)
    };
    Kind kind = Kind::freed;
    /// With freed: the device's pending asynchronous error where the free synchronized, else ok.
    BackendStatus status;
};

/// When the fence of a free may be recorded.
enum class FenceTiming : std::uint8_t {
    now,
    deferred,  ///< not yet (a capture is under way): the block waits for fence_deferred()
};

/// Thread-safety: every member function may be called from any thread at any time.
class Pool {
  public:
    /// `backend` and `observer` (may be null) must outlive the pool.
    Pool(const PoolOptions& options, DeviceBackend& backend, PoolObserver* observer);
    /// Gives nothing back to the backend: call release_all() or abandon() first where it matters.
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    /// Serves `requested` bytes (> 0). On out of memory it releases what it caches and tries once
    /// more before it returns the backend's own error.
    AllocResult allocate(std::uint64_t requested, Tag tag);

    /// Takes a block back. By PoolOptions::free_sync it may wait for the device, without the lock.
    FreeResult free(Address address, Tag tag, FenceTiming timing = FenceTiming::now);

    /// Records the fences of all frees that were deferred.
    void fence_deferred();

    /// The live block that contains `address` (not only its base).
    std::optional<BlockInfo> find(Address address) const;

    /// True when `address` lies in one of the segments, live block or not.
    bool owns(Address address) const;

    /// Gives every wholly unused segment back to the backend; returns the bytes released. Blocks
    /// whose fence is pending are waited for first when `wait` is set.
    std::uint64_t release_cached(bool wait);

    /// The context is gone: forget everything without calling the backend or the observer.
    void abandon();

    /// Time enters here only (idle trim): nanoseconds of any monotonic clock.
    void tick(std::uint64_t now_ns);

    PoolStats stats() const;

    /// Walks every structure and checks every invariant; empty when sound, else what is wrong.
    /// For tests and debugging: O(blocks).
    std::string validate() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::allocator
