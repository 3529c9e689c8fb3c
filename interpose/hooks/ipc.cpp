// Memory shared with other processes and APIs.
//
// A legacy IPC handle names the driver's allocation, that is the pool's segment, not the block: an
// importer would get the segment's base. A block at its segment's base is exported exactly, a block
// of mapped memory by a handle of memlab's own (sharing/). Any other export fails with a message;
// and from the first export on, new memory comes from the driver so that later exports are exact
// for everybody.
#include <algorithm>
#include <new>

#include "interpose/driver/diagnostics.hpp"
#include "interpose/driver/sticky_errors.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/memory/context_registry.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/moving/program_handles.hpp"
#include "interpose/sharing/exporter.hpp"
#include "interpose/sharing/importer.hpp"

namespace mi = memlab::interpose;
using memlab::trace::MemoryKind;
using mi::Api;
using mi::Driver;
using mi::HandleClass;
using mi::Session;

namespace {

mi::DriverAllocation make_import(std::size_t bytes) {
    mi::DriverAllocation allocation;
    allocation.kind = MemoryKind::ipc_import;
    allocation.requested = bytes;
    return allocation;
}

// The end of the mapping that plain CUDA would have for this block.
CUdeviceptr mapping_end(const mi::PooledBlock& pooled) {
    constexpr std::uint64_t unit = memlab::allocator::page_bytes;
    const memlab::allocator::BlockInfo& block = *pooled.block;
    return std::min((block.address + block.size + unit - 1) / unit * unit,
                    block.segment + block.segment_size);
}

std::size_t size_at(CUdeviceptr address) {
    std::size_t size = 0;
    CUdeviceptr base = 0;
    return mi::call_real(&Driver::cuMemGetAddressRange_v2, &base, &size, address) == CUDA_SUCCESS
               ? size
               : 0;
}

// The documentation allows the driver to enable the current context's access to the exporting
// device implicitly, without a call of the program's. Drivers of CUDA 13.0 do not.
template <class Real>
CUresult open_ipc(Api api, CUdeviceptr* address, unsigned flags, const Real& real) {
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                int device = 0;
                if ((flags & CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) != 0 &&
                    mi::call_real(&Driver::cuPointerGetAttribute, static_cast<void*>(&device),
                                  CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, *address) == CUDA_SUCCESS) {
                    session.contexts().share_memory_of(device);
                }
                mi::record_driver_allocation(session, api, make_import(size_at(*address)),
                                             *address);
            }
            return result;
        },
        real);
}

// A handle of another process's memlab, or the driver's.
constexpr auto open_any = [](mi::Hooked hooked, const auto& real, CUdeviceptr* address,
                             const CUipcMemHandle& handle, unsigned flags) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    const Api api = hooked.api;
    mi::SharedHandle shared;
    if (!mi::decode(handle, &shared)) {
        return open_ipc(api, address, flags, real);
    }
    return mi::hook(
        [&](Session& session) -> CUresult {
            if (address == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            mi::Importer::Import import;
            const CUresult result = mi::retry_after_release(
                session, [&] { return mi::importer().open(shared, &import); });
            if (result != CUDA_SUCCESS) {
                return result;
            }
            *address = import.address;
            if (import.opens == 1) {
                mi::record_driver_allocation(session, api, make_import(shared.bytes),
                                             import.address);
            }
            return CUDA_SUCCESS;
        },
        real);
};

CUresult close_import(Session& session, CUdeviceptr address) {
    bool last = false;
    const CUresult result = mi::importer().close(address, &last);
    if (last) {
        mi::record_driver_free(session, Api::cuIpcCloseMemHandle, HandleClass::memory, address);
    }
    return result;
}

// Of events, pools and semaphores: what they do with memory, other calls show.
constexpr auto note_sharing = [](mi::Hooked, const auto& real, auto...) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    return real();
};

[[gnu::used]] void export_opening_functions() {
    MEMLAB_EXPORT_HOOK(cuIpcGetEventHandle, note_sharing);
    MEMLAB_EXPORT_HOOK(cuIpcOpenEventHandle, note_sharing);
    MEMLAB_EXPORT_HOOK(cuMemPoolExportToShareableHandle, note_sharing);
    MEMLAB_EXPORT_HOOK(cuMemPoolImportFromShareableHandle, note_sharing);
    MEMLAB_EXPORT_HOOK(cuImportExternalSemaphore, note_sharing);
    MEMLAB_EXPORT_HOOK(cuIpcOpenMemHandle, open_any);
    MEMLAB_EXPORT_HOOK(cuIpcOpenMemHandle_v2, open_any);
}

}  // namespace

MEMLAB_EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    const mi::Passage passage;  // another process may want the memory at once
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    const auto real = mi::real_call(&Driver::cuIpcGetMemHandle, handle, address);
    return mi::hook(
        [&](Session& session) -> CUresult {
            const std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address);
            session.disable_pooling_quietly(
                "memory is shared with other processes: device memory allocated since the first "
                "export was not pooled, so that handles are exact");
            if (!pooled) {
                return real();
            }
            if (!pooled->block) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (const CUresult broken = mi::broken_context(); broken != CUDA_SUCCESS) {
                return broken;
            }
            if (mi::is_shareable(session, *pooled)) {
                if (memlab::profiler::Recorder* recorder = session.recorder()) {
                    recorder->report_limitation(
                        "pooled memory was shared with other processes by handles of memlab's own, "
                        "which a process without memlab cannot open: MEMLAB_POOL=off for such a "
                        "program",
                        0);
                }
                try {
                    if (session.settings().yield) {
                        pooled->context->backend().pages().must_stay(pooled->block->address,
                                                                     pooled->block->size);
                    }
                    return mi::exporter().share(session, *pooled, handle);
                } catch (const std::bad_alloc&) {  // the driver's handle would be another block's
                    return CUDA_ERROR_OUT_OF_MEMORY;
                }
            }
            if (pooled->context->backend().pages().owns(address)) {
                mi::warn(
                    "cuIpcGetMemHandle cannot export this memory of MEMLAB_BACKEND=vmm and was "
                    "refused; run this program with MEMLAB_BACKEND=classic");
                return CUDA_ERROR_NOT_SUPPORTED;
            }
            if (mi::exports_exactly(*pooled)) {
                return real();
            }
            mi::warn(
                "cuIpcGetMemHandle of a block inside a pooled segment cannot be exact and was "
                "refused; run this program with MEMLAB_POOL=off");
            return CUDA_ERROR_NOT_SUPPORTED;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr address) {
    const auto real = mi::real_call(&Driver::cuIpcCloseMemHandle, address);
    return mi::hook(
        [&](Session& session) {
            const std::optional<mi::Importer::Import> import = mi::importer().find(address);
            if (import && import->address == address) {
                return close_import(session, address);
            }
            return mi::free_from_driver(session, Api::cuIpcCloseMemHandle, HandleClass::memory,
                                        address, real);
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI
cuExternalMemoryGetMappedBuffer(CUdeviceptr* address, CUexternalMemory memory,
                                const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* descriptor) {
    const auto real =
        mi::real_call(&Driver::cuExternalMemoryGetMappedBuffer, address, memory, descriptor);
    return mi::hook(
        [&](Session& session) {
            const CUresult result = mi::retry_after_release(session, real);
            if (result == CUDA_SUCCESS) {
                mi::record_driver_allocation(session, Api::cuExternalMemoryGetMappedBuffer,
                                             make_import(descriptor->size), *address);
            }
            return result;
        },
        real);
}

MEMLAB_EXPORT CUresult CUDAAPI cuMemGetHandleForAddressRange(void* handle, CUdeviceptr address,
                                                             size_t bytes,
                                                             CUmemRangeHandleType type,
                                                             unsigned long long flags) {
    mi::gate.no_checkpoint_from_now_on(mi::shared_with_processes);
    const mi::Passage passage;  // the memory has to be there
    if (passage.refused()) [[unlikely]] {
        return CUDA_ERROR_DEINITIALIZED;
    }
    // The handle names a range of host pages, exact for pooled memory too. Plain CUDA accepts pages
    // of any mapped memory, and maps in units of 2 MiB.
    const auto real =
        mi::real_call(&Driver::cuMemGetHandleForAddressRange, handle, address, bytes, type, flags);
    return mi::hook(
        [&](Session& session) -> CUresult {
            constexpr CUdeviceptr last_of_page = 4095;
            std::optional<mi::PooledBlock> pooled = mi::find_pooled(session, address);
            if (pooled && !pooled->block) {  // the page begins with a neighbour's bytes
                pooled = mi::find_pooled(session, address | last_of_page);
            }
            if (pooled && (!pooled->block || bytes > mapping_end(*pooled) - address)) {
                return CUDA_ERROR_INVALID_VALUE;
            }
            if (pooled && session.settings().yield) {
                pooled->context->backend().pages().must_stay(address, bytes);
            }
            if (!pooled && mi::gate.on()) {
                mi::program_handles().must_stay(address, bytes);
            }
            return real();
        },
        real);
}
