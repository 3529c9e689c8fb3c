// The virtual memory management API: physical memory is recorded from its creation until the last
// handle and mapping are released; address reservations hold no memory and are passed through.
//
// With MEMLAB_YIELD=on the program's handles are memlab's (moving/program_handles.hpp): what needs
// the memory waits at the gate while that is away, what gives it up is answered.
#include <string_view>

#include "interpose/hooks/hook.hpp"
#include "interpose/memory/caller_policy.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/memory/vmm_allocations.hpp"
#include "interpose/moving/program_handles.hpp"
#include "interpose/process/unknown_functions.hpp"
#include "profiler/object_classes.hpp"

namespace mi = memlab::interpose;
using memlab::trace::MemoryKind;
using mi::Api;
using mi::Driver;
using mi::HandleClass;
using mi::Session;

namespace {

using Handle = CUmemGenericAllocationHandle;

void record_dead(Session& session, Api api, const std::vector<std::uint64_t>& dead) {
    for (const std::uint64_t number : dead) {
        mi::record_driver_free(session, api, HandleClass::vmm_allocation, number);
    }
}

// After a call that succeeded, which is not to be made again.
template <class Work>
void record_after(Session& session, const Work& work) noexcept {
    try {
        work();
    } catch (const std::bad_alloc&) {
        session.disable_pooling("the host is out of memory");
    }
}

constinit memlab::profiler::ObjectClasses callers;

// NCCL's buffers are known to its transports, in ways that memlab does not follow.
bool is_of_nccl(void* caller) {
    constexpr std::uint8_t nccl = 1;
    constexpr std::uint8_t other = 2;
    return callers.find_or_classify(
               reinterpret_cast<std::uintptr_t>(caller), [](std::string_view path) {
                   const std::string_view name = path.substr(path.rfind('/') + 1);
                   return name.starts_with("libnccl") ? nccl : other;
               }) == nccl;
}

// Rejects changes to, or references to, the pool's own pages. The driver would allow them, but not
// for memory from cuMemAlloc.
template <class Ours, class Real>
CUresult unless_pooled(CUdeviceptr address, std::size_t bytes, const Ours& ours, const Real& real) {
    return mi::hook(
        [&](Session& session) -> CUresult {
            const CUdeviceptr last = bytes == 0 ? address : address + bytes - 1;
            if (mi::find_pooled(session, address) || mi::find_pooled(session, last)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            return ours(session);
        },
        real);
}

mi::DriverAllocation vmm(MemoryKind kind, std::size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.handles = HandleClass::vmm_allocation;
    allocation.kind = kind;
    allocation.requested = bytes;
    return allocation;
}

// Logical endpoints (CUDA 13.3): other GPUs of an NVLink fabric reach the memory that is bound to
// one, in other processes, too. Their work is not this process's, and no fence waits for it: from
// the first such call on nothing is assumed about the memory that the pool would serve.
constexpr auto endpoint = [](mi::Hooked hooked, const auto& real, auto...) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    mi::on_unfollowed_call(mi::function_name(hooked.api));
    return real();
};
constexpr auto endpoint_of_memory = [](mi::Hooked hooked, const auto&, auto... arguments) {
    mi::on_unfollowed_call(mi::function_name(hooked.api));
    return mi::call_real(&Driver::cuLogicalEndpointBindMem, mi::with_drivers_handle(arguments)...);
};

[[gnu::used]] void export_vmm_functions() {
    MEMLAB_EXPORT_PASSED(cuMemAddressReserve);
    MEMLAB_EXPORT_HOOK(cuLogicalEndpointCreate, endpoint);
    MEMLAB_EXPORT_HOOK(cuLogicalEndpointBindAddr, endpoint);
    MEMLAB_EXPORT_HOOK(cuLogicalEndpointBindMem, endpoint_of_memory);
    MEMLAB_EXPORT_HOOK(cuLogicalEndpointExport, endpoint);
    MEMLAB_EXPORT_HOOK(cuLogicalEndpointImport, endpoint);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle* handle, size_t bytes,
                                           const CUmemAllocationProp* properties,
                                           unsigned long long flags) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const mi::CallFrame entry(__builtin_dwarf_cfa());
    void* const caller = __builtin_return_address(0);
    const auto real = mi::real_call(&Driver::cuMemCreate, handle, bytes, properties, flags);
    return mi::hook(
        [&](Session& session) {
            // Physical memory may also be on the host.
            const bool on_device =
                properties == nullptr || properties->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
            mi::DriverAllocation allocation =
                vmm(on_device ? MemoryKind::vmm : MemoryKind::pinned, bytes);
            if (on_device && properties != nullptr) {
                allocation.device = properties->location.id;
            }
            const auto create = [&] {
                const CUresult result = real();
                if (result == CUDA_SUCCESS && mi::gate.on() && !is_of_nccl(caller)) {
                    *handle = mi::program_handles().created(*handle, bytes, properties, flags);
                }
                return result;
            };
            return mi::allocate_from_driver(session, Api::cuMemCreate, allocation, create, [&] {
                const std::uint64_t number = mi::vmm_allocations().created(*handle);
                if (mi::gate.on()) {
                    mi::program_handles().set_number(*handle, number);
                }
                return number;
            });
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) {
    const auto real = mi::real_call(&Driver::cuMemRelease, handle);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::program_handles().release(
                handle, [](Handle driver) { return mi::call_real(&Driver::cuMemRelease, driver); });
            if (result == CUDA_SUCCESS) {
                record_after(session, [&] {
                    record_dead(session, Api::cuMemRelease, mi::vmm_allocations().released(handle));
                });
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemMap(CUdeviceptr address, size_t bytes, size_t offset,
                                        CUmemGenericAllocationHandle handle,
                                        unsigned long long flags) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real = mi::real_call(&Driver::cuMemMap, address, bytes, offset, handle, flags);
    return unless_pooled(
        address, bytes,
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, [&] {
                return mi::program_handles().map(
                    address, bytes, offset, handle, [&](Handle driver) {
                        return mi::call_real(&Driver::cuMemMap, address, bytes, offset, driver,
                                             flags);
                    });
            });
            if (result == CUDA_SUCCESS) {
                record_after(session, [&] {
                    mi::vmm_allocations().mapped(address, bytes, handle);
                    session.suballocators().memory_mapped(address, bytes);
                });
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemUnmap(CUdeviceptr address, size_t bytes) {
    const auto real = mi::real_call(&Driver::cuMemUnmap, address, bytes);
    return unless_pooled(
        address, bytes,
        [&](Session& session) {
            const CUresult result =
                mi::program_handles().unmap(address, bytes, [](CUdeviceptr from, std::size_t size) {
                    return mi::call_real(&Driver::cuMemUnmap, from, size);
                });
            if (result == CUDA_SUCCESS) {
                record_after(session, [&] {
                    record_dead(session, Api::cuMemUnmap,
                                mi::vmm_allocations().unmapped(address, bytes));
                    if (session.suballocators().any()) {
                        session.suballocators().memory_unmapped(*session.recorder(), address,
                                                                bytes);
                    }
                });
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemSetAccess(CUdeviceptr address, size_t bytes,
                                              const CUmemAccessDesc* access, size_t count) {
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real = mi::real_call(&Driver::cuMemSetAccess, address, bytes, access, count);
    return unless_pooled(
        address, bytes,
        [&](Session& session) {
            return mi::retry_after_release(session, [&] {
                return mi::program_handles().set_access(address, bytes, access, count, real);
            });
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemGetAccess(unsigned long long* flags,
                                              const CUmemLocation* location, CUdeviceptr address) {
    const mi::Passage passage;  // the memory has to be there
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    return mi::call_real(&Driver::cuMemGetAccess, flags, location, address);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemGetAllocationPropertiesFromHandle(
    CUmemAllocationProp* properties, CUmemGenericAllocationHandle handle) {
    const auto real =
        mi::real_call(&Driver::cuMemGetAllocationPropertiesFromHandle, properties, handle);
    return mi::hook(
        [&](Session& /*session*/) {
            return mi::program_handles().properties(properties, handle, [&](Handle driver) {
                return mi::call_real(&Driver::cuMemGetAllocationPropertiesFromHandle, properties,
                                     driver);
            });
        },
        real);
}

// From now on others may know the memory.
MEMLAB_EXPORT CUresult CUDAAPI cuMemExportToShareableHandle(void* shareable,
                                                            CUmemGenericAllocationHandle handle,
                                                            CUmemAllocationHandleType type,
                                                            unsigned long long flags) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    const mi::Passage passage;
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real =
        mi::real_call(&Driver::cuMemExportToShareableHandle, shareable, handle, type, flags);
    return mi::hook(
        [&](Session& /*session*/) {
            return mi::call_real(&Driver::cuMemExportToShareableHandle, shareable,
                                 mi::program_handles().given_away(handle), type, flags);
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle,
                                                           void* address) {
    const auto real = mi::real_call(&Driver::cuMemRetainAllocationHandle, handle, address);
    return unless_pooled(
        reinterpret_cast<CUdeviceptr>(address), 0,
        [&](Session& /*session*/) {
            const CUresult result = mi::program_handles().retain(
                handle, reinterpret_cast<CUdeviceptr>(address), [address](Handle* driver) {
                    return mi::call_real(&Driver::cuMemRetainAllocationHandle, driver, address);
                });
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
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
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

MEMLAB_EXPORT CUresult CUDAAPI cuMemAddressFree(CUdeviceptr address, size_t bytes) {
    const auto real = mi::real_call(&Driver::cuMemAddressFree, address, bytes);
    return unless_pooled(
        address, bytes,
        [&](Session& session) -> CUresult {
            if (mi::program_handles().is_away(address, bytes)) {
                return CUDA_ERROR_INVALID_VALUE;  // something is mapped there
            }
            const CUresult result = real();
            if (result == CUDA_SUCCESS && session.suballocators().any()) {
                session.suballocators().addresses_freed(*session.recorder(), address, bytes);
            }
            return result;
        },
        real);
}
