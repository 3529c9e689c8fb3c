// The virtual memory management API: physical memory is recorded from its creation until the last
// handle and mapping are gone; address reservations hold no memory and pass through.
#include "interpose/device_memory.hpp"
#include "interpose/hook.hpp"
#include "interpose/vmm_allocations.hpp"

namespace mi = memlab::interpose;
using memlab::trace::MemoryKind;
using mi::Api;
using mi::Driver;
using mi::HandleClass;
using mi::Session;

namespace {

void record_dead(Session& session, Api api, const std::vector<std::uint64_t>& dead) {
    for (const std::uint64_t number : dead) {
        mi::record_driver_free(session, api, HandleClass::vmm_allocation, number);
    }
}

mi::DriverAllocation vmm(MemoryKind kind, std::size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.handles = HandleClass::vmm_allocation;
    allocation.kind = kind;
    allocation.requested = bytes;
    return allocation;
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                           const CUmemAllocationProp* properties,
                                           unsigned long long flags) {
    const auto real = mi::real_call(&Driver::cuMemCreate, handle, bytes, properties, flags);
    return mi::hook(
        [&](Session& session) {
            // Host-located physical memory is not the device's.
            const bool on_device =
                properties == nullptr || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
            mi::DriverAllocation allocation =
                vmm(on_device ? MemoryKind::vmm : MemoryKind::pinned, bytes);
            if (on_device && properties != nullptr) {
                allocation.device = properties->location.id;
            }
            return mi::allocate_from_driver(session, Api::cuMemCreate, allocation, real,
                                            [&] { return mi::vmm_allocations().created(*handle); });
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    const auto real = mi::real_call(&Driver::cuMemRelease, handle);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                record_dead(session, Api::cuMemRelease, mi::vmm_allocations().released(handle));
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle handle,
                                        unsigned long long flags) {
    const auto real = mi::real_call(&Driver::cuMemMap, address, bytes, offset, handle, flags);
    return mi::hook(
        [&](Session& /*session*/) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                mi::vmm_allocations().mapped(address, bytes, handle);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    const auto real = mi::real_call(&Driver::cuMemUnmap, address, bytes);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                record_dead(session, Api::cuMemUnmap,
                            mi::vmm_allocations().unmapped(address, bytes));
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                           void* address) {
    const auto real = mi::real_call(&Driver::cuMemRetainAllocationHandle, handle, address);
    return mi::hook(
        [&](Session& session) -> CUresult {
            // The pool's own pages are not the program's to hold on to: as for any memory that
            // cuMemAlloc gave.
            if (mi::find_pooled(session, reinterpret_cast<CUdeviceptr>(address))) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            const CUresult result = real();
            if (result == CUDA_SUCCESS) {
                mi::vmm_allocations().retained(*handle);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle,
                                                              void* shareable,
                                                              CUmemAllocationHandleType type) {
    const auto real =
        mi::real_call(&Driver::cuMemImportFromShareableHandle, handle, shareable, type);
    return mi::hook(
        [&](Session& session) {
            return mi::allocate_from_driver(session, Api::cuMemImportFromShareableHandle,
                                            vmm(MemoryKind::ipc_import, 0), real,
                                            [&] { return mi::vmm_allocations().created(*handle); });
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemAddressReserve(CUdeviceptr* address, size_t bytes,
                                                   size_t alignment, CUdeviceptr wish,
                                                   unsigned long long flags) {
    return mi::call_real(&Driver::cuMemAddressReserve, address, bytes, alignment, wish, flags);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    return mi::call_real(&Driver::cuMemAddressFree, address, bytes);
}
