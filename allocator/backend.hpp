// The pool's interface to a device: memory, expandable ranges and fences. CudaBackend
// (interpose/memory) is the real one; what-if has its own, tests have SimulatedBackend.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace memlab::allocator {

/// A device address. 0 is never a valid one.
using Address = std::uint64_t;

/// CUDA_ERROR_OUT_OF_MEMORY. The pool itself returns it for a size that overflows when rounded
/// (kind out_of_memory) and when its bookkeeping gets no host memory (kind error; no backend
/// reports this code with that kind).
inline constexpr std::int32_t out_of_memory_code = 2;

/// CUDA_ERROR_UNKNOWN: the backend returned an impossible segment (0, misaligned, or overlapping
/// one that the pool still holds), as after a context loss that the pool was not told about.
inline constexpr std::int32_t unusable_segment_code = 999;

/// CUDA_ERROR_NOT_SUPPORTED: returned by a backend without expandable ranges.
inline constexpr std::int32_t not_supported_code = 801;

/// The granularity of device memory.
inline constexpr std::uint64_t page_bytes = 2ULL << 20;

/// Bytes rounded up to whole pages, which must not overflow.
constexpr std::uint64_t whole_pages(std::uint64_t bytes) {
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

inline constexpr std::uint64_t max_chunk_bytes = 64ULL << 20;

/// Memory is mapped into expandable ranges in chunks: of a fixed size from the beginning of what is
/// mapped at once, the last one shorter. Mapping and unmapping cost by the chunk (33 us each on an
/// H200, whatever its size up to 64 MiB), but a chunk goes back only as a whole.
///
/// Where blocks share chunks, larger chunks keep more of what is free: half of what is mapped,
/// rounded up to a power of two, from 2 to 64 MiB. In 29 steps of varying size the recorded
/// transformer of tests/data/h200 then maps 120 chunks, and once it has seen them all 8, with
/// eighths 409 and 59.
constexpr std::uint64_t chunk_bytes(std::uint64_t mapped_at_once) {
    return std::clamp(std::bit_ceil((mapped_at_once + 1) / 2), page_bytes, max_chunk_bytes);
}

/// Where a block has its chunks to itself, it has as few as possible; of this size, so that giving
/// one back (0.3 ms a GiB) keeps nobody waiting for long.
inline constexpr std::uint64_t max_own_chunk_bytes = 1ULL << 30;

/// The outcome of a backend call. `code` is the backend's own error number (a CUresult), carried
/// through the pool unchanged, so that the program gets the driver's own error.
struct BackendStatus {
    enum class Kind : std::uint8_t {
        ok,
        out_of_memory,
        error,
        not_now,  ///< fence_record() only: not allowed yet (a stream capture is under way)
    };
    Kind kind = Kind::ok;
    std::int32_t code = 0;

    bool ok() const { return kind == Kind::ok; }
};

/// A point in the device's work: complete when everything submitted to the block's context (and
/// every context with access to it) before the fence was recorded has finished. 0: nothing to wait
/// for. Fences are reference-counted by the backend; the pool releases each reference once.
using Fence = std::uint64_t;

/// Identifies a stream to the backend. 0: all streams.
using StreamId = std::uint64_t;

enum class FenceState : std::uint8_t { complete, pending, failed };

/// Thread-safety: every function may be called from any thread; none may call back into the pool.
/// Those that say nothing else are called with the pool's lock held.
class DeviceBackend {
  public:
    DeviceBackend() = default;
    DeviceBackend(const DeviceBackend&) = delete;
    DeviceBackend& operator=(const DeviceBackend&) = delete;
    virtual ~DeviceBackend() = default;

    /// Gets `bytes` (a multiple of 2 MiB) of device memory, at least 512-byte aligned. Called
    /// without the pool's lock, except after several calls whose answers came too late.
    virtual BackendStatus segment_alloc(std::uint64_t bytes, Address* address) = 0;

    /// Frees a whole segment. Waits for work that may still use it, and for no other. The pool
    /// drops the segment even after an error, since reusing it would be unsafe. Called without the
    /// pool's lock.
    virtual BackendStatus segment_free(Address address, std::uint64_t bytes) = 0;

    // Expandable ranges: reserved addresses into which memory is mapped in chunks of whole pages
    // (page_bytes), and from which chunks are unmapped. All four are called as segment_alloc() is;
    // addresses and sizes are multiples of a page. A backend implements all four or none.

    /// Reserves addresses. After any failure the pool uses whole segments only.
    virtual BackendStatus range_reserve(Address* base, std::uint64_t bytes) {
        static_cast<void>(base);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Releases addresses, none of which has memory mapped.
    virtual BackendStatus range_release(Address base, std::uint64_t bytes) {
        static_cast<void>(base);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Maps memory to unmapped pages of a range, readable and writable as cuMemAlloc's, in chunks
    /// of `chunk` bytes. All of the pages or, on failure, none.
    virtual BackendStatus pages_map(Address address, std::uint64_t bytes, std::uint64_t chunk) {
        static_cast<void>(address);
        static_cast<void>(bytes);
        static_cast<void>(chunk);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Unmaps whole chunks, neighbours, of what one or several calls mapped. Waits for work that
    /// may still use them, since the pool may only have ordered new work behind it, and for no
    /// other. The pool counts the pages as unmapped from before the call on, even after an error,
    /// and may map them again once it has returned. Nothing happens to pages that have no memory:
    /// their context may have ended meanwhile. Called without the pool's lock.
    virtual BackendStatus pages_unmap(Address address, std::uint64_t bytes) {
        static_cast<void>(address);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// The program's limit of device memory in bytes, all kinds together; 0: unknown. Constant for
    /// the pool's lifetime.
    virtual std::uint64_t total_memory() const { return 0; }

    /// Bytes that the device could give now, besides what the pool holds.
    static constexpr std::uint64_t unknown_memory = ~std::uint64_t{0};
    virtual std::uint64_t available_memory() const { return unknown_memory; }

    /// Records a fence behind all work submitted so far. Fences complete in the order in which they
    /// were recorded; the same value may be returned again (with one more reference) when nothing
    /// was submitted in between. *fence = 0 when the backend knows that nothing is running.
    /// not_now: the pool defers the free and retries. An error: the block stays allocated, as in
    /// plain CUDA when cudaFree fails.
    virtual BackendStatus fence_record(Fence* fence) = 0;

    /// The same behind the work of `stream` (not 0) only, which is all that a stream-ordered free
    /// promises. Such fences complete in recording order within their stream, in no defined order
    /// across streams. A backend that cannot do this records behind all work and sets *stream_only
    /// to false.
    virtual BackendStatus fence_record_in(StreamId stream, Fence* fence, bool* stream_only) {
        static_cast<void>(stream);
        *stream_only = false;
        return fence_record(fence);
    }

    /// True for a fence that only fence_wait_host() completes: the backend could not record an
    /// event (a driver without context events, no memory for an event). A free then waits on the
    /// host, as cudaFree does.
    virtual bool fence_needs_host_wait(Fence fence) {
        static_cast<void>(fence);
        return false;
    }

    /// Never blocks; safe during a capture (then `pending` where the state is unknown). failed: the
    /// context has a sticky error, and its work will never complete.
    virtual FenceState fence_query(Fence fence) = 0;

    /// Orders all *future* work of the context behind the fence without blocking the host. An error
    /// means that nothing was ordered, as when the device must not be touched (during a capture).
    virtual BackendStatus fence_wait_device(Fence fence) = 0;

    /// True when all *future* work of the context is ordered behind the fence already, as if
    /// fence_wait_device() had been called: all work so far is in one stream, and the backend
    /// inserts the dependency before any is submitted to another.
    virtual bool ordered_behind(Fence fence) {
        static_cast<void>(fence);
        return false;
    }

    /// Blocks the calling thread until the fence is complete; returns the device's pending
    /// asynchronous error, if any. Called without the pool's lock.
    virtual BackendStatus fence_wait_host(Fence fence) = 0;

    /// Blocks the calling thread until all work submitted so far is complete. Needs no fence, so it
    /// also works while none can be recorded, as during a capture. An error: not possible. Called
    /// without the pool's lock.
    virtual BackendStatus wait_host() { return {BackendStatus::Kind::error, not_supported_code}; }

    /// Whether the caller of the free in progress may rely on cudaFree's host synchronization.
    /// Called on the caller's thread, without the pool's lock, and only when it matters:
    /// FreeSync::automatic and the fence is pending. False for callers known not to rely on it:
    /// their frees behave as with FreeSync::never.
    virtual bool caller_needs_host_wait() const { return true; }

    /// True when caller_needs_host_wait() is known to return false without inspecting the caller.
    /// Called with the pool's lock held.
    virtual bool caller_never_waits() const { return false; }

    /// The pool no longer needs the fence.
    virtual void fence_release(Fence fence) = 0;
};

}  // namespace memlab::allocator
