// cuMemAlloc and its family, pinned and registered host memory, and what a pointer's attributes
// say.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/capture.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/pool.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/tool.hpp"

namespace memlab::simcuda {
namespace {

constexpr uint64_t pitch_step = 512;

CUresult allocate(CUdeviceptr* dptr, size_t bytes, Kind kind) {
    if (dptr != nullptr) {
        *dptr = 0;  // whatever the answer will be
    }
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (dptr == nullptr || bytes == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    uint64_t address = 0;
    const CUresult result = allocate_device(root(*context), bytes, kind, address);
    if (result == CUDA_SUCCESS) {
        *dptr = address;
        tell_memory(kind == Kind::managed ? simcuda_managed : simcuda_device, address, bytes,
                    context->device);
    }
    return result;
}

CUresult allocate_pitch(CUdeviceptr* dptr, size_t* pitch, size_t width, size_t height,
                        unsigned element) {
    if (pitch == nullptr || width == 0 || height == 0 ||
        (element != 4 && element != 8 && element != 16)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t row = round_up(width, pitch_step);
    if (row < width || height > UINT64_MAX / row) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const CUresult result = allocate(dptr, row * height, Kind::device);
    if (result == CUDA_SUCCESS) {
        *pitch = row;
    }
    return result;
}

// The first ABI has 32-bit device pointers, which the simulated memory never fits.
CUresult allocate_32_bit(CUdeviceptr_v1* dptr) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    return dptr == nullptr ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult free_device(CUdeviceptr dptr) {
    Context* context = nullptr;
    // It needs none to be current, but a current one that is destroyed is an error.
    const CUresult error = current_context(context);
    if (error != CUDA_SUCCESS && error != CUDA_ERROR_INVALID_CONTEXT) {
        return error;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (dptr == 0) {
        return CUDA_SUCCESS;
    }
    auto it = allocations().find(dptr);
    if (it == allocations().end() || it->second.free_pending) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Allocation& allocation = it->second;
    switch (allocation.kind) {
        case Kind::device:
        case Kind::managed:
            // CUDA's promise: nothing that was submitted may still use it.
            wait_for_context(*allocation.context);
            show_output(*allocation.context);
            release_allocation(dptr);
            return CUDA_SUCCESS;
        case Kind::async:
        case Kind::graph:
            if (context == nullptr) {
                return error;
            }
            wait_for_context(root(*context));
            show_output(*context);
            if (CUresult failed = free_to_pool(dptr, legacy_stream(*context))) {
                return failed;
            }
            release_idle_pool_memory();
            return CUDA_SUCCESS;
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult allocate_host(void** pp, size_t bytes, unsigned flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    constexpr unsigned known =
        CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    if (pp == nullptr || (flags & ~known) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (bytes == 0) {
        *pp = nullptr;
        return CUDA_SUCCESS;
    }
    Allocation allocation;
    allocation.bytes = bytes;
    allocation.reserved = round_up(bytes, 4096);
    if (allocation.reserved < bytes) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    void* memory = mmap(nullptr, allocation.reserved, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    allocation.base = reinterpret_cast<uint64_t>(memory);
    allocation.kind = Kind::pinned;
    allocation.context = context;
    allocation.device = context->device;
    allocation.flags = flags | CU_MEMHOSTALLOC_DEVICEMAP;  // as with unified addressing all is
    allocation.buffer_id = next_buffer_id();
    allocations().emplace(allocation.base, allocation);
    tell_memory(simcuda_pinned, allocation.base, bytes, context->device);
    *pp = memory;
    return CUDA_SUCCESS;
}

CUresult register_host(void* p, size_t bytes, unsigned flags) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    const auto base = reinterpret_cast<uint64_t>(p);
    if (p == nullptr || bytes == 0 || bytes > address_space - std::min(base, address_space) ||
        is_device_address(base)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_allocation(base) != nullptr || find_allocation(base + bytes - 1) != nullptr) {
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
    }
    Allocation allocation;
    allocation.base = base;
    allocation.bytes = bytes;
    allocation.reserved = bytes;
    allocation.kind = Kind::registered;
    allocation.context = context;
    allocation.device = context->device;
    allocation.flags = flags;
    allocation.buffer_id = next_buffer_id();
    allocations().emplace(base, allocation);
    return CUDA_SUCCESS;
}

CUresult unregister_host(void* p) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    auto it = allocations().find(reinterpret_cast<uint64_t>(p));
    if (it == allocations().end() || it->second.kind != Kind::registered) {
        return p == nullptr || find_allocation(reinterpret_cast<uint64_t>(p)) != nullptr
                   ? CUDA_ERROR_INVALID_VALUE
                   : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    }
    wait_for_context(*it->second.context);
    release_allocation(it->first);
    return CUDA_SUCCESS;
}

CUresult free_host(void* p) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (p == nullptr) {
        return CUDA_SUCCESS;
    }
    auto it = allocations().find(reinterpret_cast<uint64_t>(p));
    if (it == allocations().end() || it->second.kind != Kind::pinned) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (CUresult refused = refuse_unsafe_call()) {
        return refused;
    }
    wait_for_context(*it->second.context);
    release_allocation(it->first);
    return CUDA_SUCCESS;
}

CUresult host_pointer(CUdeviceptr* pdptr, void* p) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    const Allocation* allocation = find_allocation(reinterpret_cast<uint64_t>(p));
    // Mapped memory is taken as well, unlike cuMemAlloc's: seen on an H100.
    if (pdptr == nullptr || allocation == nullptr ||
        (allocation->kind != Kind::pinned && allocation->kind != Kind::registered &&
         allocation->kind != Kind::vmm)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pdptr = reinterpret_cast<CUdeviceptr>(p);
    return CUDA_SUCCESS;
}

bool on_host(const Allocation& allocation) {
    return allocation.kind == Kind::pinned || allocation.kind == Kind::registered ||
           (allocation.pool != nullptr && is_on_host(*allocation.pool));
}

bool migrates(const Allocation& allocation) {
    return allocation.kind == Kind::managed ||
           (allocation.pool != nullptr && is_managed(*allocation.pool));
}

template <typename Value>
CUresult put(void* data, Value value) {
    *static_cast<Value*>(data) = value;
    return CUDA_SUCCESS;
}

// Mapped memory without access has no address on a device yet, and without a current context there
// is no device to tell it of.
bool has_device_address(const Allocation& allocation, CUdeviceptr pointer) {
    Context* context = nullptr;
    return current_context(context) == CUDA_SUCCESS &&
           (allocation.kind != Kind::vmm || pages_state(pointer, 1) == 2);
}

CUresult pointer_attribute(void* data, CUpointer_attribute attribute, const Allocation& allocation,
                           CUdeviceptr pointer) {
    const bool host = on_host(allocation);
    // Of virtual memory the range is the reservation's.
    const auto range = allocation.kind == Kind::vmm ? reservation_of(pointer)
                                                    : std::pair(allocation.base, allocation.bytes);
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
            return put(data, allocation.kind == Kind::vmm || allocation.pool != nullptr
                                 ? CUcontext{nullptr}
                                 : handle(allocation.context));
        case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
            return put(data, host ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE);
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
            return put(data, has_device_address(allocation, pointer) ? pointer : CUdeviceptr{0});
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            if (!host && !migrates(allocation)) {
                put(data, CUdeviceptr{0});
                return CUDA_ERROR_INVALID_VALUE;
            }
            return put(data, pointer);
        case CU_POINTER_ATTRIBUTE_SYNC_MEMOPS:
            return put(data, static_cast<unsigned>(allocation.sync_memops ||
                                                   allocation.kind == Kind::managed));
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
            return put(data, allocation.buffer_id);
        case CU_POINTER_ATTRIBUTE_IS_MANAGED:
            return put(data, static_cast<unsigned>(migrates(allocation)));
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            return put(data, allocation.device);
        case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
            return put(data, static_cast<unsigned>(allocation.kind == Kind::device));
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
            return put(data, range.first);
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
            return put(data, allocation.base);
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            return put(data, range.second);
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
            return put(data, static_cast<size_t>(allocation.reserved));
        case CU_POINTER_ATTRIBUTE_MAPPED:
            return put(data, 1U);
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
            return put(data, uint64_t{0});
        case CU_POINTER_ATTRIBUTE_IS_GPU_DIRECT_RDMA_CAPABLE:
            return put(data, static_cast<unsigned>(allocation.kind == Kind::device ||
                                                   mapped_for_rdma(allocation.base)));
        case CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE:
            return put(data, static_cast<unsigned>(allocation.kind == Kind::device ||
                                                   mapped_for_decompression(allocation.base)));
        case CU_POINTER_ATTRIBUTE_ACCESS_FLAGS:
            return put(data, static_cast<unsigned>(CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE));
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return put(data, reinterpret_cast<CUmemoryPool>(allocation.pool));
        default:
            return CUDA_ERROR_INVALID_VALUE;
    }
}

uint64_t attribute_size(CUpointer_attribute attribute) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_CONTEXT:
        case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
        case CU_POINTER_ATTRIBUTE_BUFFER_ID:
        case CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID:
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_MAPPING_BASE_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
        case CU_POINTER_ATTRIBUTE_MAPPING_SIZE:
        case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES:
        case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
            return 8;
        default:
            return 4;
    }
}

void attribute_of_unknown(void* data, CUpointer_attribute attribute, CUdeviceptr pointer) {
    switch (attribute) {
        case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
        case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
            if (const auto [base, bytes] = reservation_of(pointer); bytes != 0) {
                put(data, attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ? bytes : base);
            }
            break;
        case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
            put(data, -2);  // CU_DEVICE_INVALID
            break;
        case CU_POINTER_ATTRIBUTE_HOST_POINTER:
            put(data, pointer);
            break;
        default:
            std::memset(data, 0, attribute_size(attribute));
            break;
    }
}

CUresult address_range(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
    if (pbase == nullptr && psize == nullptr) {
        return CUDA_SUCCESS;
    }
    const Allocation* allocation = find_allocation(dptr);
    if (allocation == nullptr || allocation->free_pending ||
        (allocation->kind == Kind::vmm && pages_state(dptr, 1) != 2)) {
        return CUDA_ERROR_NOT_FOUND;
    }
    if (pbase != nullptr) {
        *pbase = allocation->base;
    }
    if (psize != nullptr) {
        *psize = allocation->bytes;
    }
    return CUDA_SUCCESS;
}

}  // namespace
}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuMemAlloc_v2(CUdeviceptr* dptr, size_t bytesize) {
    return allocate(dptr, bytesize, Kind::device);
}

CUresult sim_cuMemAlloc(CUdeviceptr_v1* dptr, unsigned int) {
    return allocate_32_bit(dptr);
}

CUresult sim_cuMemAllocPitch_v2(CUdeviceptr* dptr, size_t* pPitch, size_t WidthInBytes,
                                size_t Height, unsigned int ElementSizeBytes) {
    return allocate_pitch(dptr, pPitch, WidthInBytes, Height, ElementSizeBytes);
}

CUresult sim_cuMemAllocPitch(CUdeviceptr_v1* dptr, unsigned int*, unsigned int, unsigned int,
                             unsigned int) {
    return allocate_32_bit(dptr);
}

CUresult sim_cuMemAllocManaged(CUdeviceptr* dptr, size_t bytesize, unsigned int flags) {
    if (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    return allocate(dptr, bytesize, Kind::managed);
}

CUresult sim_cuMemFree_v2(CUdeviceptr dptr) {
    return free_device(dptr);
}

CUresult sim_cuMemFree(CUdeviceptr_v1 dptr) {
    return free_device(dptr);
}

CUresult sim_cuMemAllocHost_v2(void** pp, size_t bytesize) {
    return allocate_host(pp, bytesize, 0);
}

CUresult sim_cuMemAllocHost(void** pp, unsigned int bytesize) {
    return allocate_host(pp, bytesize, 0);
}

CUresult sim_cuMemHostAlloc(void** pp, size_t bytesize, unsigned int Flags) {
    return allocate_host(pp, bytesize, Flags);
}

CUresult sim_cuMemFreeHost(void* p) {
    return free_host(p);
}

CUresult sim_cuMemHostRegister_v2(void* p, size_t bytesize, unsigned int Flags) {
    return register_host(p, bytesize, Flags);
}

CUresult sim_cuMemHostRegister(void* p, size_t bytesize, unsigned int Flags) {
    return register_host(p, bytesize, Flags);
}

CUresult sim_cuMemHostUnregister(void* p) {
    return unregister_host(p);
}

CUresult sim_cuMemHostGetDevicePointer_v2(CUdeviceptr* pdptr, void* p, unsigned int) {
    return host_pointer(pdptr, p);
}

CUresult sim_cuMemHostGetFlags(unsigned int* pFlags, void* p) {
    const Allocation* allocation = find_allocation(reinterpret_cast<uint64_t>(p));
    if (pFlags == nullptr || allocation == nullptr || !on_host(*allocation)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *pFlags = allocation->flags;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetInfo_v2(size_t* free, size_t* total) {
    Context* context = nullptr;
    if (CUresult error = current_context(context)) {
        return error;
    }
    if (total != nullptr) {
        *total = options().memory;
    }
    if (free != nullptr) {
        *free = options().memory -
                std::min<uint64_t>(find_device(context->device)->used, options().memory);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetInfo(unsigned int* free, unsigned int* total) {
    size_t wide_free = 0;
    size_t wide_total = 0;
    const CUresult result = sim_cuMemGetInfo_v2(free == nullptr ? nullptr : &wide_free,
                                                total == nullptr ? nullptr : &wide_total);
    if (result == CUDA_SUCCESS) {
        *free = static_cast<unsigned>(std::min<size_t>(wide_free, UINT32_MAX));
        *total = static_cast<unsigned>(std::min<size_t>(wide_total, UINT32_MAX));
    }
    return result;
}

CUresult sim_cuMemGetAddressRange_v2(CUdeviceptr* pbase, size_t* psize, CUdeviceptr dptr) {
    Context* context = nullptr;
    const CUresult error = current_context(context);
    return error != CUDA_SUCCESS ? error : address_range(pbase, psize, dptr);
}

CUresult sim_cuMemGetAddressRange(CUdeviceptr_v1* pbase, unsigned int* psize, CUdeviceptr_v1 dptr) {
    CUdeviceptr base = 0;
    size_t size = 0;
    const CUresult result = sim_cuMemGetAddressRange_v2(&base, &size, dptr);
    if (result == CUDA_SUCCESS) {
        if (pbase != nullptr) {
            *pbase = static_cast<CUdeviceptr_v1>(base);
        }
        if (psize != nullptr) {
            *psize = static_cast<unsigned>(size);
        }
    }
    return result;
}

CUresult sim_cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr ptr) {
    if (data == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const Allocation* allocation = find_allocation(ptr);
    return allocation == nullptr ? CUDA_ERROR_INVALID_VALUE
                                 : pointer_attribute(data, attribute, *allocation, ptr);
}

// For a pointer that CUDA does not know every attribute is zero and its host address itself, the
// range is left alone, and the call succeeds.
CUresult sim_cuPointerGetAttributes(unsigned int numAttributes, CUpointer_attribute* attributes,
                                    void** data, CUdeviceptr ptr) {
    if (numAttributes == 0 || attributes == nullptr || data == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const Allocation* allocation = find_allocation(ptr);
    for (unsigned i = 0; i < numAttributes; ++i) {
        if (attributes[i] < CU_POINTER_ATTRIBUTE_CONTEXT ||
            attributes[i] > CU_POINTER_ATTRIBUTE_IS_HW_DECOMPRESS_CAPABLE) {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (unsigned i = 0; i < numAttributes; ++i) {
        if (allocation == nullptr) {
            attribute_of_unknown(data[i], attributes[i], ptr);
        } else if (pointer_attribute(data[i], attributes[i], *allocation, ptr) != CUDA_SUCCESS) {
            std::memset(data[i], 0, attribute_size(attributes[i]));
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuPointerSetAttribute(const void* value, CUpointer_attribute attribute,
                                   CUdeviceptr ptr) {
    Allocation* allocation = find_allocation(ptr);
    if (value == nullptr || allocation == nullptr ||
        attribute != CU_POINTER_ATTRIBUTE_SYNC_MEMOPS) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    unsigned wanted = 0;
    std::memcpy(&wanted, value, sizeof wanted);
    allocation->sync_memops = wanted != 0;
    return CUDA_SUCCESS;
}
