// What the pool needs from a device, and all that it knows of one. CudaBackend (interpose/) is the
// real one, SimulatedBackend the one for tests and replay.
#pragma once

#include <cstdint>

namespace memlab::allocator {

/// A device address. 0 is never a valid one.
using Address = std::uint64_t;

/// CUDA_ERROR_OUT_OF_MEMORY: what the pool itself answers when no backend needs asking (a size that
/// overflows when rounded: kind out_of_memory) or when its own bookkeeping finds no host memory
/// (kind error; no backend reports this code with that kind).
inline constexpr std::int32_t out_of_memory_code = 2;

/// CUDA_ERROR_UNKNOWN: the backend handed out a segment that cannot be (0, misaligned, overlapping
/// one that the pool still holds): it knows of a lost context that the pool was not told about.
inline constexpr std::int32_t unusable_segment_code = 999;

/// CUDA_ERROR_NOT_SUPPORTED: what a backend without expandable ranges answers.
inline constexpr std::int32_t not_supported_code = 801;

/// The unit in which memory is got from a device.
inline constexpr std::uint64_t page_bytes = 2ULL << 20;

/// The outcome of a backend call. `code` is the backend's own error number (a CUresult), carried
/// through the pool untouched so that the program gets the driver's true answer.
struct BackendStatus {
    enum class Kind : std::uint8_t {
        ok,
        out_of_memory,
        error,
        not_now,  ///< of a fence only: none may be recorded yet (a stream capture is under way)
    };
    Kind kind = Kind::ok;
    std::int32_t code = 0;

    bool ok() const { return kind == Kind::ok; }
};

/// A point in the device's work: complete when everything submitted to the block's context (and
/// every context with access to it) before the fence was recorded has finished. 0: nothing to wait
/// for. Fences are reference-counted by the backend; the pool releases each one it got, once.
using Fence = std::uint64_t;

/// Names a stream to the backend. 0 is none: what concerns the work of all streams.
using StreamId = std::uint64_t;

enum class FenceState : std::uint8_t { complete, pending, failed };

/// Thread-safety: every function may be called from any thread, and may be called with the pool's
/// lock held; none may call back into the pool.
class DeviceBackend {
  public:
    DeviceBackend() = default;
    DeviceBackend(const DeviceBackend&) = delete;
    DeviceBackend& operator=(const DeviceBackend&) = delete;
    virtual ~DeviceBackend() = default;

    /// Gets `bytes` (a multiple of 2 MiB) of device memory, at least 512-byte aligned.
    virtual BackendStatus segment_alloc(std::uint64_t bytes, Address* address) = 0;

    /// Gives a whole segment back. Like cudaFree it waits for work that may still use it. The pool
    /// forgets the segment whatever the answer: after an error it would be unsafe to hand out.
    /// Called without the pool's lock, but where a segment just got turns out to be unusable.
    virtual BackendStatus segment_free(Address address, std::uint64_t bytes) = 0;

    // Expandable ranges: addresses without memory, into which memory is mapped and out of which it
    // is taken again, page by page (page_bytes). All four are called with the pool's lock held;
    // addresses and sizes are multiples of a page. A backend that has them has all four.

    /// Reserves addresses. Any failure means that the pool gets whole segments from now on.
    virtual BackendStatus range_reserve(Address* base, std::uint64_t bytes) {
        static_cast<void>(base);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Gives addresses back, none of which has memory.
    virtual BackendStatus range_release(Address base, std::uint64_t bytes) {
        static_cast<void>(base);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Gives memory to pages of a range that have none, readable and writable as cuMemAlloc's; all
    /// of them or, when it fails, none.
    virtual BackendStatus pages_map(Address address, std::uint64_t bytes) {
        static_cast<void>(address);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// Takes the memory of pages away, which may have been mapped in several calls and be a part of
    /// what one call mapped. Like cudaFree it waits for work that may still use it: the pool may
    /// only have ordered new work behind that. The pool counts the pages as gone whatever the
    /// answer, and may map them again.
    virtual BackendStatus pages_unmap(Address address, std::uint64_t bytes) {
        static_cast<void>(address);
        static_cast<void>(bytes);
        return {BackendStatus::Kind::error, not_supported_code};
    }

    /// The bytes of memory that the program can have at most, all kinds together; 0: unknown. Does
    /// not change while the pool lives.
    virtual std::uint64_t total_memory() const { return 0; }

    /// Records a fence behind all work submitted so far. Fences complete in the order in which they
    /// were recorded; the same value may be returned again (one reference more) when nothing was
    /// submitted in between. *fence = 0 when the backend knows that nothing is running. not_now:
    /// the pool keeps the block back and asks again; an error: the block stays allocated, as plain
    /// CUDA's does when cudaFree answers one.
    virtual BackendStatus fence_record(Fence* fence) = 0;

    /// The same behind the work of `stream` alone (not 0), which is all that a stream-ordered free
    /// promises. Such fences complete in the order in which they were recorded in their stream, and
    /// in any order against others. Where the backend cannot do that it records behind all work and
    /// sets *alone to false.
    virtual BackendStatus fence_record_in(StreamId stream, Fence* fence, bool* alone) {
        static_cast<void>(stream);
        *alone = false;
        return fence_record(fence);
    }

    /// True of a fence that only fence_wait_host() completes: the backend could not record one
    /// (a driver without context events, no memory for an event). A free then waits on the host, as
    /// CUDA's own cudaFree does.
    virtual bool fence_needs_host_wait(Fence fence) {
        static_cast<void>(fence);
        return false;
    }

    /// Never blocks, and is safe during a capture (pending where it cannot know). failed: the
    /// context is broken (sticky error); its work will never complete.
    virtual FenceState fence_query(Fence fence) = 0;

    /// Orders all *future* work of the context behind the fence without stopping the host. An error
    /// means that nothing was ordered (so answers a backend that must not touch the device now, as
    /// during a capture).
    virtual BackendStatus fence_wait_device(Fence fence) = 0;

    /// True when all *future* work of the context is ordered behind the fence anyway, as if
    /// fence_wait_device() had been called: the backend knows that all work goes to one stream, and
    /// sees to the order before any goes to another.
    virtual bool ordered_behind(Fence fence) {
        static_cast<void>(fence);
        return false;
    }

    /// Blocks the calling thread until the fence is complete; returns the device's pending
    /// asynchronous error, if any. Called without the pool's lock.
    virtual BackendStatus fence_wait_host(Fence fence) = 0;

    /// Blocks the calling thread until all work submitted so far is complete, without a fence: also
    /// while none can be recorded, as during a capture. An error: it cannot. Called without the
    /// pool's lock.
    virtual BackendStatus wait_host() { return {BackendStatus::Kind::error, not_supported_code}; }

    /// Whether the caller of the free in progress may rely on cudaFree's promise that the host has
    /// waited for the device. Asked on the caller's thread, without the pool's lock, and only when
    /// the answer matters: FreeSync::automatic and the fence is pending. False where the caller is
    /// known not to: its frees go on as with FreeSync::never.
    virtual bool caller_needs_host_wait() const { return true; }

    /// True when it is known without looking anywhere that caller_needs_host_wait() would say
    /// false. With the pool's lock held.
    virtual bool caller_surely_goes_on() const { return false; }

    /// The pool no longer needs the fence.
    virtual void fence_release(Fence fence) = 0;
};

}  // namespace memlab::allocator
