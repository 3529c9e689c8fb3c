#include "interpose/memory/driver_allocation.hpp"

#include <algorithm>
#include <atomic>
#include <new>
#include <optional>

#include "interpose/driver/async_pools.hpp"
#include "interpose/driver/current_context.hpp"
#include "interpose/driver/relaxed_capture.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/memory/memory.hpp"
#include "interpose/memory/memory_limit.hpp"
#include "threads/no_cancellation.hpp"

namespace memlab::interpose {
namespace {

using trace::MemoryKind;

/// The source of an allocation's memory.
struct Source {
    CUdevice device = 0;
    Context* other = nullptr;     ///< a context on the device, if the current one is not
    CUmemoryPool pool = nullptr;  ///< stream-ordered memory only
    std::uint64_t reserved = 0;   ///< bytes that pool holds already
};

/// The driver's pool that serves a stream-ordered allocation on the device.
CUmemoryPool serving_pool(const DriverAllocation& allocation, CUdevice device) {
    CUmemoryPool pool = allocation.pool;
    if (pool == nullptr) {
        call_real(&Driver::cuDeviceGetMemPool, &pool, device);
    }
    return pool;
}

std::uint64_t beyond(std::uint64_t requested, std::uint64_t reserved) {
    return requested - std::min(requested, reserved);
}

/// nullopt for memory without a limit.
std::optional<Source> find_source(Memory& memory, const DriverAllocation& allocation) {
    // A graph's memory is taken at its launch.
    if (!memory.limits().wanted() || !trace::counts_as_device_memory(allocation.kind) ||
        allocation.kind == MemoryKind::graph) {
        return std::nullopt;
    }
    const Context* current = memory.contexts().current();
    Source source;
    source.device = allocation.device;
    if (allocation.device < 0) {
        if (current == nullptr) {
            return std::nullopt;  // the driver call will fail
        }
        source.device = current->device();
    }
    if (allocation.kind == MemoryKind::async_pool) {
        source.pool = serving_pool(allocation, source.device);
        source.device = async_pools().find_device(source.pool, source.device);
        source.reserved = reserved_bytes_in(source.pool);
    }
    if (memory.limits().limit_for(source.device) == 0) {
        return std::nullopt;
    }
    if (current == nullptr || current->device() != source.device) {
        const std::vector<Context*> there = memory.contexts().all(source.device);
        if (there.empty()) {
            if (profiler::Recorder* recorder = memory.recorder()) {
                recorder->report_limitation(
                    "MEMLAB_LIMIT was not applied to a device on which this process has no "
                    "context: its use of memory is unknown",
                    allocation.requested);
            }
            return std::nullopt;
        }
        source.other = there.front();
    }
    return source;
}

void undo(const DriverAllocation& allocation, std::uint64_t address, const Source& source) {
    const RelaxedCapture relaxed(true);
    if (allocation.handles == HandleClass::array) {
        call_real(&Driver::cuArrayDestroy, reinterpret_cast<CUarray>(address));
    } else if (allocation.handles == HandleClass::mipmapped_array) {
        call_real(&Driver::cuMipmappedArrayDestroy, reinterpret_cast<CUmipmappedArray>(address));
    } else if (allocation.kind == MemoryKind::async_pool) {
        call_real(&Driver::cuMemFreeAsync, CUdeviceptr{address}, allocation.stream);
        // The pool releases only what no stream can still use.
        call_real(&Driver::cuStreamSynchronize, allocation.stream);
        call_real(&Driver::cuMemPoolTrimTo, source.pool, std::size_t{source.reserved});
    } else {
        call_real(&Driver::cuMemFree_v2, CUdeviceptr{address});
    }
}

CUresult take(MemoryLimits& limits, const DriverAllocation& allocation, const Source& source,
              FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address) {
    if (source.pool == nullptr && !allocation.estimated) {
        return limits.take(source.device, allocation.requested, real);
    }
    // A pool may serve the allocation from memory that it holds: only the excess is certain.
    return limits.take(source.device, beyond(allocation.requested, source.reserved), real,
                       [&] { undo(allocation, address(), source); });
}

}  // namespace

DriverRange find_driver_range(Memory& memory, std::uint64_t address) {
    const RelaxedCapture relaxed(memory.captures().capturing());
    CUdeviceptr begin = 0;
    std::size_t bytes = 0;
    if (call_real(&Driver::cuMemGetAddressRange_v2, &begin, &bytes, CUdeviceptr{address}) ==
        CUDA_SUCCESS) {
        const auto live = memory.live().find(HandleClass::memory, begin);
        return {begin, live ? live->requested : bytes, live};
    }
    DriverRange known;
    if (was_kept_from_driver()) {
        known.live = memory.live().find_around(address, &known.begin);
        known.bytes = known.live ? known.live->requested : 0;
    }
    return known;
}

std::uint64_t least_from_device(const DriverAllocation& allocation) {
    CUdevice device = allocation.device;
    if ((allocation.kind != MemoryKind::async_pool && allocation.kind != MemoryKind::graph) ||
        (device < 0 && call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS)) {
        return allocation.requested;
    }
    return beyond(allocation.requested, reserved_bytes_in(serving_pool(allocation, device)));
}

// A driver allocation of the same kind gets the same error, with the same effect on the capture.
CUresult probe_driver_in_capture() {
    CUdeviceptr probe = 0;
    const CUresult answer = call_real(&Driver::cuMemAlloc_v2, &probe, std::size_t{512});
    if (answer == CUDA_SUCCESS) {
        return call_real(&Driver::cuMemFree_v2, probe);
    }
    // Out of memory says nothing about the capture.
    return answer == CUDA_ERROR_OUT_OF_MEMORY ? CUDA_SUCCESS : answer;
}

[[gnu::hot]] CUresult allocate_within_limit(Memory& memory, const DriverAllocation& allocation,
                                            FunctionRef<CUresult()> real,
                                            FunctionRef<std::uint64_t()> address) {
    const std::optional<Source> source = find_source(memory, allocation);
    if (!source) {
        return real();
    }
    CUresult result = CUDA_SUCCESS;
    if (source->other == nullptr) {
        result = take(memory.limits(), allocation, *source, real, address);
    } else {
        const CurrentContext current(source->other->handle());
        result = take(memory.limits(), allocation, *source, real, address);
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && memory.captures().capturing()) {
        const CUresult in_capture = probe_driver_in_capture();
        return in_capture == CUDA_SUCCESS ? result : in_capture;
    }
    return result;
}

[[gnu::cold]] void fill_from_driver(Memory& memory, const DriverAllocation& allocation,
                                    std::uint64_t address, Context* context) {
    CUresult result = CUDA_SUCCESS;
    if (allocation.kind == MemoryKind::async_pool) {
        const bool capturing = memory.captures().capturing();
        if (capturing && is_default_stream(allocation.stream)) {
            return;
        }
        const RelaxedCapture relaxed(capturing);
        const CurrentContext current(stream_context(allocation.stream));
        const WorkClock::Submission submission(work_clock);
        result =
            call_real(&Driver::cuMemsetD8Async, CUdeviceptr{address}, memory.settings().fill.value,
                      std::size_t{allocation.requested}, allocation.stream);
    } else if (allocation.kind == MemoryKind::device && context != nullptr) {
        result = context->backend().fill(address, allocation.requested);
    }
    if (result != CUDA_SUCCESS && memory.recorder() != nullptr) {
        memory.recorder()->report_limitation(
            "MEMLAB_FILL: an allocation of the driver's was not filled", allocation.requested);
    }
}

bool release_for_driver(Memory& memory, CUdevice device) noexcept {
    const threads::NoCancellation no_cancellation;
    if (device < 0 && call_real(&Driver::cuCtxGetDevice, &device) != CUDA_SUCCESS) {
        device = -1;
    }
    try {
        return memory.contexts().release_cached(device, nullptr) != 0;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

void reclaim_for_managed(Memory& memory, std::uint64_t bytes) {
    const Context* const current = memory.contexts().current();
    if (current == nullptr || memory.captures().capturing()) {
        return;
    }
    std::uint64_t cached = 0;
    std::size_t index = 0;
    while (Context* const context = memory.contexts().next(current->device(), &index)) {
        cached += context->pool().reclaimable();
    }
    // Frees of less than this are not worth asking the driver.
    constexpr std::uint64_t worth_asking = std::uint64_t{64} << 20;
    static std::atomic<std::uint64_t> cached_when_asked{0};
    const std::uint64_t then = cached_when_asked.load(std::memory_order_relaxed);
    if (cached < then) {
        cached_when_asked.store(cached, std::memory_order_relaxed);
    }
    if (cached == 0 || (bytes == 0 && cached < then + worth_asking)) {
        return;
    }
    cached_when_asked.store(cached, std::memory_order_relaxed);
    const auto device = static_cast<std::uint32_t>(current->device());
    const std::uint64_t managed =
        memory.live().bytes_by_kind(device)[static_cast<std::size_t>(MemoryKind::managed)];
    std::size_t free = 0;
    std::size_t total = 0;
    if (device_memory_info(&free, &total) == CUDA_SUCCESS &&
        (bytes > free || managed > free - bytes)) {
        memory.contexts().release_cached(current->device(), nullptr);
    }
}

}  // namespace memlab::interpose
