#include "interpose/memory/cuda_backend.hpp"

#include "interpose/driver/current_context.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/memory.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

using allocator::BackendStatus;
using allocator::Fence;
using allocator::FenceState;

BackendStatus to_status(CUresult result) {
    BackendStatus status;
    status.code = result;
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
        status.kind = BackendStatus::Kind::out_of_memory;
    } else if (result != CUDA_SUCCESS) {
        status.kind = BackendStatus::Kind::error;
    }
    return status;
}

[[gnu::hot]] BackendStatus to_fence_status(CUresult result) {
    BackendStatus status;
    status.code = result;
    if (result != CUDA_SUCCESS) {
        status.kind = result == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED ? BackendStatus::Kind::not_now
                                                                      : BackendStatus::Kind::error;
    }
    return status;
}

}  // namespace

CudaBackend::CudaBackend(Memory& memory, Context& context, CUcontext handle)
    : memory_(memory),
      context_(context),
      handle_(handle),
      fences_(memory.captures(), handle, memory.started_late()),
      pages_(context.device()) {}

void CudaBackend::wait_for_earlier_owner(allocator::Address base, std::uint64_t bytes) const {
    memory_.contexts().wait_for_earlier_owner(base, bytes, &context_);
}

BackendStatus CudaBackend::segment_alloc(std::uint64_t bytes, allocator::Address* address) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory_);
    const RelaxedCapture relaxed(true);
    const CurrentContext current(handle_);
    CUdeviceptr pointer = 0;
    const CUresult result = memory_.limits().take(context_.device(), bytes, [&] {
        return call_real(&Driver::cuMemAlloc_v2, &pointer, std::size_t{bytes});
    });
    if (result == CUDA_SUCCESS) {
        memory_.report_growth();
        *address = pointer;
        memory_.made(pointer);
        wait_for_earlier_owner(pointer, bytes);
        if (!memory_.segments().add(pointer, bytes, &context_)) {
            call_real(&Driver::cuMemFree_v2, pointer);
            return {BackendStatus::Kind::error, allocator::out_of_memory_code};
        }
    }
    return to_status(result);
}

bool CudaBackend::frees_in_order() {
    if (profiler_attached.load(std::memory_order_relaxed)) {
        return false;
    }
    const threads::LockGuard lock(release_mutex_);
    if (has_async_frees_ == Support::unknown) {
        has_async_frees_ = device_has(context_.device(), CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED)
                               ? Support::yes
                               : Support::no;
    }
    return has_async_frees_ == Support::yes;
}

// Created late, since few programs need it. Null where that is not possible (now).
CUstream CudaBackend::release_stream() {
    if (!frees_in_order()) {
        return nullptr;
    }
    const threads::LockGuard lock(release_mutex_);
    if (release_stream_ == nullptr && call_real(&Driver::cuStreamCreate, &release_stream_,
                                                unsigned{CU_STREAM_NON_BLOCKING}) != CUDA_SUCCESS) {
        release_stream_ = nullptr;
    }
    return release_stream_;
}

bool CudaBackend::frees_without_waiting() {
    return (frees_in_order() && fences_.barriers_complete()) || fences_.idle();
}

// In relaxed mode, not behind the gate: the device may wait for work that another thread submits
// after beginning a capture.
BackendStatus CudaBackend::segment_free(allocator::Address address, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory_);
    fences_.wait_for_barriers();
    const RelaxedCapture relaxed(true);
    const CurrentContext current(handle_);
    // Remove it from the index before the driver can reuse the address.
    memory_.segments().remove(address, bytes, &context_);
    CUstream stream = release_stream();
    if (stream != nullptr &&
        call_real(&Driver::cuMemFreeAsync, CUdeviceptr{address}, stream) == CUDA_SUCCESS) {
        return to_status(call_real(&Driver::cuStreamSynchronize, stream));
    }
    return to_status(call_real(&Driver::cuMemFree_v2, CUdeviceptr{address}));
}

CUresult CudaBackend::fill_once(allocator::Address address, std::uint64_t bytes) {
    const RelaxedCapture relaxed(true);
    const CurrentContext current(handle_);
    CUstream stream = nullptr;
    {
        const threads::LockGuard lock(fill_mutex_);
        if (fill_stream_ == nullptr) {
            const CUresult made =
                call_real(&Driver::cuStreamCreate, &fill_stream_, unsigned{CU_STREAM_NON_BLOCKING});
            if (made != CUDA_SUCCESS) {
                fill_stream_ = nullptr;
                return made;
            }
        }
        stream = fill_stream_;
    }
    const CUresult result = call_real(&Driver::cuMemsetD8Async, CUdeviceptr{address},
                                      memory_.settings().fill.value, std::size_t{bytes}, stream);
    return result == CUDA_SUCCESS ? call_real(&Driver::cuStreamSynchronize, stream) : result;
}

CUresult CudaBackend::fill(allocator::Address address, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    const CUresult result = fill_once(address, bytes);
    // The stream takes memory, too.
    return result == CUDA_ERROR_OUT_OF_MEMORY &&
                   memory_.contexts().release_cached(context_.device(), nullptr) != 0
               ? fill_once(address, bytes)
               : result;
}

BackendStatus CudaBackend::range_reserve(allocator::Address* base, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    const CUresult result = pages_.reserve(bytes, base);
    if (result == CUDA_SUCCESS) {
        wait_for_earlier_owner(*base, bytes);
    }
    if (result == CUDA_SUCCESS && !memory_.segments().add(*base, bytes, &context_)) {
        pages_.release(*base, bytes);
        return {BackendStatus::Kind::error, allocator::out_of_memory_code};
    }
    return to_status(result);
}

BackendStatus CudaBackend::range_release(allocator::Address base, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    memory_.segments().remove(base, bytes, &context_);
    return to_status(pages_.release(base, bytes));
}

BackendStatus CudaBackend::pages_map(allocator::Address address, std::uint64_t bytes,
                                     std::uint64_t chunk) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory_);
    const RelaxedCapture relaxed(true);
    const CurrentContext current(handle_);
    memory_.report_growth();
    // Mapping needs no context, but an allocation in a destroyed or broken one must still
    // fail.
    std::size_t free = 0;
    std::size_t total = 0;
    if (const CUresult broken = device_memory_info(&free, &total); broken != CUDA_SUCCESS) {
        return to_status(broken);
    }
    CUresult result = CUDA_SUCCESS;
    try {
        result = memory_.limits().take(context_.device(), bytes,
                                       [&] { return pages_.map(address, bytes, chunk); });
    } catch (const std::bad_alloc&) {
        return {BackendStatus::Kind::error, allocator::out_of_memory_code};
    }
    for (std::uint64_t done = 0; result == CUDA_SUCCESS && done < bytes; done += chunk) {
        memory_.made(address + done);  // CUPTI has a record for each mapping
    }
    return to_status(result);
}

BackendStatus CudaBackend::pages_unmap(allocator::Address address, std::uint64_t bytes) {
    const threads::NoCancellation no_cancellation;
    const Memory::Changing changing(memory_);
    fences_.wait_for_barriers();
    const RelaxedCapture relaxed(true);
    const CurrentContext current(handle_);
    return to_status(pages_.unmap(address, bytes));
}

// The memory visible to the program: a limit counts as the device's size.
std::uint64_t CudaBackend::total_memory() const {
    if (const std::uint64_t limit = memory_.limits().limit_for(context_.device()); limit != 0) {
        return limit;
    }
    std::size_t total = 0;
    return call_real(&Driver::cuDeviceTotalMem_v2, &total, context_.device()) == CUDA_SUCCESS
               ? total
               : 0;
}

// What a limit leaves of the driver's free memory.
std::uint64_t CudaBackend::available_memory() const {
    const CurrentContext current(handle_);
    return memory_.limits().available(context_.device());
}

[[gnu::hot]] BackendStatus CudaBackend::fence_record(Fence* fence) {
    return to_fence_status(fences_.record(fence));
}

BackendStatus CudaBackend::fence_record_in(allocator::StreamId stream, Fence* fence, bool* alone) {
    return to_fence_status(fences_.record_in(stream, fence, alone));
}

[[gnu::hot]] bool CudaBackend::fence_needs_host_wait(Fence fence) {
    return CudaFences::needs_host_wait(fence);
}

[[gnu::hot]] FenceState CudaBackend::fence_query(Fence fence) {
    return fences_.query(fence);
}

BackendStatus CudaBackend::fence_wait_device(Fence fence) {
    return to_status(fences_.wait_device(fence));
}

[[gnu::hot]] bool CudaBackend::ordered_behind(Fence fence) {
    return fences_.ordered_behind(fence);
}

BackendStatus CudaBackend::fence_wait_host(Fence fence) {
    const threads::NoCancellation no_cancellation;
    return to_status(fences_.wait_host(fence));
}

[[gnu::hot]] void CudaBackend::fence_release(Fence fence) {
    fences_.release(fence);
}

BackendStatus CudaBackend::wait_host() {
    const threads::NoCancellation no_cancellation;
    return to_status(fences_.wait_for_context_and_peers());
}

[[gnu::hot]] bool CudaBackend::caller_needs_host_wait() const {
    return caller_relies_on_host_wait();
}

[[gnu::hot]] void CudaBackend::show_new_output() {
    const allocator::FreeSync sync = memory_.settings().pool_options.free_sync;
    if (sync == allocator::FreeSync::never ||
        (sync == allocator::FreeSync::automatic && !caller_relies_on_host_wait())) {
        return;
    }
    const threads::NoCancellation no_cancellation;
    fences_.show_output();
}

[[gnu::hot]] bool CudaBackend::caller_never_waits() const {
    return caller_is_known_asynchronous();
}

}  // namespace memlab::interpose
