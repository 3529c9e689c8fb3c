// The DeviceBackend of a real CUDA context. Segments come from cuMemAlloc, expandable ranges and
// their pages from VmmPages; fences are CudaFences.
//
// Memory goes back to the driver without waiting for work that does not use it. cuMemFree would
// wait for all work of the context, a kernel that never ends included; so segments are freed by
// cuMemFreeAsync in a stream that has no other work, once their own fences are complete. Not beside
// a profiler (profiler_attached).
//
// MEMLAB_FILL: fresh memory is filled in a stream that depends on no other, and is complete before
// the program gets its address. So no stream, thread or graph of the program can be before it, and
// captures are neither touched by it nor refuse it. What used the memory before is over or ordered
// before it: the pool hands out memory whose fence is complete, or behind which all future work of
// the context is ordered. It may not rely on the order of the program's only stream then
// (one_stream.hpp), which Session does not track while that option is on.
#pragma once

#include "allocator/backend.hpp"
#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/cuda_fences.hpp"
#include "interpose/driver/vmm_pages.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

class Context;
class Memory;

/// Called with the pool's lock held and without the capture gate; functions that are forbidden in a
/// capture take the gate themselves.
class CudaBackend final : public allocator::DeviceBackend {
  public:
    CudaBackend(Memory& memory, Context& context, CUcontext handle);

    allocator::BackendStatus segment_alloc(std::uint64_t bytes,
                                           allocator::Address* address) override;
    allocator::BackendStatus segment_free(allocator::Address address, std::uint64_t bytes) override;
    allocator::BackendStatus range_reserve(allocator::Address* base, std::uint64_t bytes) override;
    allocator::BackendStatus range_release(allocator::Address base, std::uint64_t bytes) override;
    allocator::BackendStatus pages_map(allocator::Address address, std::uint64_t bytes,
                                       std::uint64_t chunk) override;
    allocator::BackendStatus pages_unmap(allocator::Address address, std::uint64_t bytes) override;
    std::uint64_t total_memory() const override;
    std::uint64_t available_memory() const override;
    allocator::BackendStatus fence_record(allocator::Fence* fence) override;
    allocator::BackendStatus fence_record_in(allocator::StreamId stream, allocator::Fence* fence,
                                             bool* alone) override;
    bool fence_needs_host_wait(allocator::Fence fence) override;
    allocator::FenceState fence_query(allocator::Fence fence) override;
    allocator::BackendStatus fence_wait_device(allocator::Fence fence) override;
    bool ordered_behind(allocator::Fence fence) override;
    allocator::BackendStatus fence_wait_host(allocator::Fence fence) override;
    void fence_release(allocator::Fence fence) override;
    allocator::BackendStatus wait_host() override;
    bool caller_needs_host_wait() const override;
    bool caller_never_waits() const override;

    CudaFences& fences() { return fences_; }
    /// Call after a free for which plain CUDA waits: shows what kernels printed where that wait
    /// would have, and the caller may rely on it. Waits for no work; costs no call of the driver
    /// where nothing was submitted since the last time.
    void show_output() {
        if (fences_.may_hold_output()) {
            show_new_output();
        }
    }
    VmmPages& pages() { return pages_; }

    /// MEMLAB_FILL: fills so much fresh memory of the context's device and waits until that is
    /// done, also behind a kernel that leaves no room on the GPU. On an error, the driver's, it may
    /// hold anything. Call without any of memlab's locks.
    CUresult fill(allocator::Address address, std::uint64_t bytes);

    /// Whether memory would go back now without waiting for any work.
    bool frees_without_waiting();

  private:
    void show_new_output();

    void wait_for_earlier_owner(allocator::Address base, std::uint64_t bytes) const;
    bool frees_in_order();
    CUstream release_stream();
    CUresult fill_once(allocator::Address address, std::uint64_t bytes);

    Memory& memory_;
    Context& context_;
    const CUcontext handle_;
    CudaFences fences_;
    VmmPages pages_;
    threads::Mutex release_mutex_;  ///< taken last
    CUstream release_stream_ MEMLAB_GUARDED_BY(release_mutex_) =
        nullptr;                                                     ///< ends with the context
    threads::Mutex fill_mutex_;                                      ///< taken last
    CUstream fill_stream_ MEMLAB_GUARDED_BY(fill_mutex_) = nullptr;  ///< ends with the context
    enum class Support : std::uint8_t { unknown, no, yes };
    /// Whether the device has cuMemFreeAsync.
    Support has_async_frees_ MEMLAB_GUARDED_BY(release_mutex_) = Support::unknown;
};

}  // namespace memlab::interpose
