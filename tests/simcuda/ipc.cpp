// Legacy IPC of device memory, and memory imported from other programs' handles.
#include <unistd.h>

#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/share.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"

namespace memlab::simcuda {
namespace {

CUresult open_handle(CUdeviceptr* out, const CUipcMemHandle& handle, unsigned flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    SharedName name;
    std::memcpy(&name, &handle, sizeof name);
    if (out == nullptr || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // A process cannot open its own handle.
    if (name.process == getpid()) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    if (name.device != context->device && options().ipc_enables_peers) {
        context->peer_devices.push_back(name.device);
    }
    // One mapping for a handle, however often it is opened.
    for (auto& [base, allocation] : allocations()) {
        if (allocation.kind == Kind::ipc && allocation.buffer_id == name.buffer_id) {
            ++allocation.opens;
            *out = base;
            return CUDA_SUCCESS;
        }
    }
    Allocation allocation;
    allocation.physical = open_shared(name);
    if (!allocation.physical) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    const uint64_t address = reserve_addresses(name.range_bytes);
    if (address == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    map_pages(address, name.range_bytes, *allocation.physical, 0, true);
    allocation.base = address + name.into;
    allocation.bytes = name.bytes;
    allocation.reserved = name.range_bytes;
    allocation.kind = Kind::ipc;
    allocation.context = &root(*context);
    allocation.device = name.device;
    allocation.buffer_id = name.buffer_id;
    allocation.opens = 1;
    *out = allocation.base;
    allocations().emplace(allocation.base, std::move(allocation));
    return CUDA_SUCCESS;
}

struct ExternalMemory {
    std::shared_ptr<Physical> physical;
    uint64_t bytes;
};

std::map<CUexternalMemory, ExternalMemory>& external_memories() {
    static auto& all = *new std::map<CUexternalMemory, ExternalMemory>;
    return all;
}

}  // namespace
}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuIpcGetMemHandle(CUipcMemHandle* pHandle, CUdeviceptr dptr) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    const Allocation* allocation = find_allocation(dptr);
    if (pHandle == nullptr || allocation == nullptr || allocation->kind != Kind::device) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const Physical& physical =
        allocation->chunk ? *allocation->chunk->physical : *allocation->physical;
    SharedName name = shared_name(physical);
    name.into = allocation->chunk
                    ? static_cast<uint32_t>(allocation->base - allocation->chunk->address)
                    : 0;
    name.bytes = allocation->bytes;
    name.buffer_id = allocation->buffer_id;
    static_assert(sizeof name <= sizeof *pHandle);
    std::memset(pHandle, 0, sizeof *pHandle);
    std::memcpy(pHandle, &name, sizeof name);
    return CUDA_SUCCESS;
}

CUresult sim_cuIpcOpenMemHandle(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return open_handle(pdptr, handle, Flags);
}

CUresult sim_cuIpcOpenMemHandle_v2(CUdeviceptr* pdptr, CUipcMemHandle handle, unsigned int Flags) {
    return open_handle(pdptr, handle, Flags);
}

CUresult sim_cuIpcCloseMemHandle(CUdeviceptr dptr) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    auto it = allocations().find(dptr);
    if (it == allocations().end() || it->second.kind != Kind::ipc) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (--it->second.opens == 0) {
        wait_for_context(*it->second.context);
        release_allocation(dptr);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuImportExternalMemory(CUexternalMemory* extMem_out,
                                    const CUDA_EXTERNAL_MEMORY_HANDLE_DESC* memHandleDesc) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (extMem_out == nullptr || memHandleDesc == nullptr || memHandleDesc->size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (memHandleDesc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    // The driver takes the descriptor over: any file of that size serves as memory.
    auto physical = Physical::import(context->device, memHandleDesc->handle.fd, 0,
                                     round_up(memHandleDesc->size, page_bytes));
    static uint64_t next = 0x1000;
    auto* handle = reinterpret_cast<CUexternalMemory>(next += 0x10);
    external_memories().emplace(handle, ExternalMemory{physical, memHandleDesc->size});
    *extMem_out = handle;
    return CUDA_SUCCESS;
}

CUresult sim_cuExternalMemoryGetMappedBuffer(CUdeviceptr* devPtr, CUexternalMemory extMem,
                                             const CUDA_EXTERNAL_MEMORY_BUFFER_DESC* bufferDesc) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    auto it = external_memories().find(extMem);
    if (it == external_memories().end()) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if (devPtr == nullptr || bufferDesc == nullptr || bufferDesc->size == 0 ||
        bufferDesc->offset + bufferDesc->size > it->second.bytes) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Allocation allocation;
    allocation.bytes = bufferDesc->size;
    allocation.reserved = round_up(bufferDesc->size, page_bytes);
    allocation.base = reserve_addresses(allocation.reserved);
    if (allocation.base == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.kind = Kind::device;
    allocation.context = &root(*context);
    allocation.device = context->device;
    allocation.buffer_id = next_buffer_id();
    allocation.physical = it->second.physical;
    map_pages(allocation.base, allocation.reserved, *allocation.physical, bufferDesc->offset, true);
    count_live(static_cast<int64_t>(allocation.bytes));
    *devPtr = allocation.base;
    allocations().emplace(allocation.base, std::move(allocation));
    return CUDA_SUCCESS;
}

CUresult sim_cuDestroyExternalMemory(CUexternalMemory extMem) {
    return external_memories().erase(extMem) != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
