// cuMemAlloc and related functions: device memory served by the pool, and managed memory.
//
// The first versions of these functions (CUDA 2.0) pass addresses and sizes in 32 bits. No program
// that runs on current drivers can use such memory, so they are passed through.
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/pitch.hpp"

namespace mi = memlab::interpose;
using memlab::trace::MemoryKind;
using mi::Api;
using mi::Driver;
using mi::Session;

[[gnu::used]] static void export_first_versions() {
    MEMLAB_EXPORT_PASSED(cuMemAlloc);
    MEMLAB_EXPORT_PASSED(cuMemFree);
    MEMLAB_EXPORT_PASSED(cuMemAllocPitch);
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address,
                                                                  size_t bytes) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const mi::CallFrame entry(__builtin_dwarf_cfa());
    const auto real = mi::real_call(&Driver::cuMemAlloc_v2, address, bytes);
    return mi::hook_passed(
        [&](Session& session) {
            return mi::allocate_device(session, Api::cuMemAlloc_v2, address, bytes, real);
        },
        real);
}

[[gnu::always_inline]] static inline CUresult free_passed(CUdeviceptr address, void* frame) {
    const mi::CallFrame entry(frame);
    const auto real = mi::real_call(&Driver::cuMemFree_v2, address);
    return mi::hook_passed(
        [&](Session& session) {
            const CUresult result = mi::free_device(session, Api::cuMemFree_v2, address, real);
            if (session.live().had_managed()) [[unlikely]] {
                mi::reclaim_for_managed(session, 0);
            }
            return result;
        },
        [&] { return mi::free_nested(Session::current(), Api::cuMemFree_v2, address, real); });
}

// With MEMLAB_YIELD=on. While the driver is locked it is kept for later.
[[gnu::noinline]] static CUresult free_at_gate(CUdeviceptr address, void* frame) {
    if (mi::gate.is_shut() && mi::in_session([address](Session& session) {
            return session.mover() != nullptr && session.mover()->free_later(address);
        })) {
        return CUDA_SUCCESS;
    }
    const mi::OtherPassage passage;
    return passage.refused() ? CUDA_ERROR_DEINITIALIZED : free_passed(address, frame);
}

MEMLAB_EXPORT __attribute__((hot)) CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) {
    void* const frame = __builtin_dwarf_cfa();
    return mi::gate.on() ? free_at_gate(address, frame) : free_passed(address, frame);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemAllocPitch_v2(CUdeviceptr* address, size_t* pitch, size_t width,
                                                  size_t height, unsigned int element_size) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const mi::CallFrame entry(__builtin_dwarf_cfa());
    const auto real =
        mi::real_call(&Driver::cuMemAllocPitch_v2, address, pitch, width, height, element_size);
    return mi::hook(
        [&](Session& session) {
            std::size_t bytes = 0;
            std::size_t our_pitch = 0;
            const bool known =
                mi::pitched_size(session, width, height, element_size, &our_pitch, &bytes);
            if (known && address != nullptr && pitch != nullptr && session.pooling()) {
                const CUresult result =
                    mi::allocate_device(session, Api::cuMemAllocPitch_v2, address, bytes,
                                        mi::real_call(&Driver::cuMemAlloc_v2, address, bytes));
                if (result == CUDA_SUCCESS) {
                    *pitch = our_pitch;
                }
                return result;
            }
            mi::DriverAllocation allocation;
            allocation.requested = known ? bytes : width * height;
            allocation.estimated = !known;
            return mi::allocate_from_driver(session, Api::cuMemAllocPitch_v2, allocation, real,
                                            [&] { return *address; });
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemAllocManaged(CUdeviceptr* address, size_t bytes,
                                                 unsigned int flags) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real = mi::real_call(&Driver::cuMemAllocManaged, address, bytes, flags);
    return mi::hook(
        [&](Session& session) {
            mi::DriverAllocation allocation;
            allocation.kind = MemoryKind::managed;
            allocation.requested = bytes;
            mi::reclaim_for_managed(session, bytes);
            return mi::allocate_from_driver(session, Api::cuMemAllocManaged, allocation, real,
                                            [&] { return *address; });
        },
        real);
}
