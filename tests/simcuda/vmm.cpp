// Virtual memory management: address ranges, physical handles, mapping one to the other, access.
//
// A handle is counted by cuMemCreate, cuMemRetainAllocationHandle and cuMemImport...; its memory
// lives until the last handle is released and the last mapping unmapped. The same handle can be
// mapped in several places: copies through one are seen through the others.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iterator>
#include <map>
#include <vector>

#include "tests/simcuda/call.hpp"
#include "tests/simcuda/memory.hpp"
#include "tests/simcuda/options.hpp"
#include "tests/simcuda/race.hpp"
#include "tests/simcuda/share.hpp"
#include "tests/simcuda/state.hpp"
#include "tests/simcuda/statistics.hpp"
#include "tests/simcuda/tool.hpp"

namespace memlab::simcuda {
namespace {

struct Handle {
    std::shared_ptr<Physical> physical;
    CUmemAllocationProp properties{};
    unsigned references = 1;
    unsigned mappings = 0;
};

struct Vmm {
    std::map<CUmemGenericAllocationHandle, Handle> handles;
    CUmemGenericAllocationHandle next = 0x51000000;
    std::map<uint64_t, uint64_t> reservations;  // address, bytes
    std::map<uint64_t, CUmemGenericAllocationHandle> mapped;
};

Vmm& vmm() {
    static Vmm& once = *new Vmm;
    return once;
}

Handle* find_handle(CUmemGenericAllocationHandle handle) {
    auto it = vmm().handles.find(handle);
    return it == vmm().handles.end() ? nullptr : &it->second;
}

CUmemGenericAllocationHandle add_handle(std::shared_ptr<Physical> physical,
                                        const CUmemAllocationProp& properties) {
    const CUmemGenericAllocationHandle handle = ++vmm().next;
    vmm().handles.emplace(handle, Handle{std::move(physical), properties});
    return handle;
}

bool valid(const CUmemAllocationProp* prop) {
    return prop != nullptr && prop->type == CU_MEM_ALLOCATION_TYPE_PINNED &&
           prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE;
}

bool inside_reservation(uint64_t address, uint64_t bytes) {
    const auto [base, length] = reservation_of(address);
    return length != 0 && address + bytes <= base + length;
}

bool is_multiple(uint64_t bytes) {
    return bytes != 0 && bytes % page_bytes == 0;
}

uint64_t mapped_end(uint64_t base) {
    return base + allocations().at(base).bytes;
}

// The mapping that the address lies in, or the first behind it.
auto first_mapped(uint64_t address) {
    auto it = vmm().mapped.upper_bound(address);
    if (it != vmm().mapped.begin() && mapped_end(std::prev(it)->first) > address) {
        --it;
    }
    return it;
}

bool any_mapped(uint64_t address, uint64_t bytes) {
    const auto first = first_mapped(address);
    return first != vmm().mapped.end() && first->first < address + bytes;
}

void end_handle_if_unused(CUmemGenericAllocationHandle handle) {
    if (const Handle* found = find_handle(handle);
        found != nullptr && found->references == 0 && found->mappings == 0) {
        vmm().handles.erase(handle);
    }
}

// Of what is mapped there; all zero where nothing is.
CUmemAllocationProp properties_of(uint64_t base) {
    auto it = vmm().mapped.find(base);
    const Handle* found = it == vmm().mapped.end() ? nullptr : find_handle(it->second);
    return found != nullptr ? found->properties : CUmemAllocationProp{};
}

}  // namespace

bool mapped_for_rdma(uint64_t base) {
    return properties_of(base).allocFlags.gpuDirectRDMACapable != 0;
}

bool mapped_for_decompression(uint64_t base) {
    return (properties_of(base).allocFlags.usage & CU_MEM_CREATE_USAGE_HW_DECOMPRESS) != 0;
}

std::pair<uint64_t, uint64_t> reservation_of(uint64_t address) {
    auto it = vmm().reservations.upper_bound(address);
    if (it == vmm().reservations.begin()) {
        return {};
    }
    --it;
    if (address >= it->first + it->second) {
        return {};
    }
    return {it->first, it->second};
}

}  // namespace memlab::simcuda

using namespace memlab::simcuda;

CUresult sim_cuMemGetAllocationGranularity(size_t* granularity, const CUmemAllocationProp* prop,
                                           CUmemAllocationGranularity_flags) {
    if (granularity == nullptr || !valid(prop)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *granularity = page_bytes;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressReserve(CUdeviceptr* ptr, size_t size, size_t alignment, CUdeviceptr,
                                 unsigned long long flags) {
    if (ptr == nullptr || !is_multiple(size) || flags != 0 || (alignment & (alignment - 1)) != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const uint64_t address = reserve_addresses(size, alignment);
    if (address == 0) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    vmm().reservations.emplace(address, size);
    *ptr = address;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemAddressFree(CUdeviceptr ptr, size_t size) {
    auto it = vmm().reservations.find(ptr);
    if (it == vmm().reservations.end() || it->second != size || any_mapped(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    vmm().reservations.erase(it);
    return_addresses(ptr, size);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size,
                         const CUmemAllocationProp* prop, unsigned long long flags) {
    if (handle == nullptr || !valid(prop) || !is_multiple(size) || flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (find_device(prop->location.id) == nullptr) {
        return CUDA_ERROR_INVALID_DEVICE;
    }
    if (CUresult fault = check_allocation_faults(size)) {
        return fault;
    }
    auto physical = Physical::create(prop->location.id, size);
    if (!physical) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = add_handle(std::move(physical), *prop);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRelease(CUmemGenericAllocationHandle handle) {
    Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    --found->references;
    end_handle_if_unused(handle);
    return CUDA_SUCCESS;
}

CUresult sim_cuMemMap(CUdeviceptr ptr, size_t size, size_t offset,
                      CUmemGenericAllocationHandle handle, unsigned long long flags) {
    // Whole allocations only (measured on an H200).
    Handle* found = find_handle(handle);
    if (found == nullptr || found->references == 0 || size == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (offset != 0 || size != found->physical->bytes()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    if (flags != 0 || ptr % page_bytes != 0 || !inside_reservation(ptr, size) ||
        any_mapped(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    Allocation allocation;
    allocation.base = ptr;
    allocation.bytes = size;
    allocation.reserved = size;
    allocation.kind = Kind::vmm;
    allocation.device = found->physical->device();
    allocation.buffer_id = next_buffer_id();
    allocation.physical = found->physical;
    map_pages(ptr, size, *found->physical, 0, false);
    count_live(static_cast<int64_t>(size));
    // CUPTI 13.0 has a record for each mapping, as if it were an allocation (measured on an H100).
    tell_memory(simcuda_device, ptr, size, allocation.device);
    allocations().emplace(ptr, std::move(allocation));
    vmm().mapped.emplace(ptr, handle);
    ++found->mappings;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemUnmap(CUdeviceptr ptr, size_t size) {
    // Whole mappings only, inside one reservation; places where nothing is mapped do no harm.
    std::vector<uint64_t> bases;
    if (!is_multiple(size) || !inside_reservation(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto it = first_mapped(ptr); it != vmm().mapped.end() && it->first < ptr + size; ++it) {
        if (it->first < ptr || mapped_end(it->first) > ptr + size) {
            return CUDA_ERROR_INVALID_VALUE;
        }
        bases.push_back(it->first);
    }
    // The driver waits for nothing (H200, beside a kernel that does not end).
    for (const uint64_t at : bases) {
        const uint64_t bytes = allocations().at(at).bytes;
        check_giving_back(at, bytes, host_clock());
        forget_accesses(at, bytes);
        const CUmemGenericAllocationHandle handle = vmm().mapped.at(at);
        vmm().mapped.erase(at);
        unmap_pages(at, bytes);
        release_allocation(at);
        --vmm().handles.at(handle).mappings;
        end_handle_if_unused(handle);
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc* desc,
                            size_t count) {
    if (desc == nullptr || count == 0 || !is_multiple(size) || !inside_reservation(ptr, size)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (size_t i = 0; i < count; ++i) {
        if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            find_device(desc[i].location.id) == nullptr) {
            return CUDA_ERROR_INVALID_DEVICE;
        }
    }
    // Work in the memory's own device needs its access; copies made elsewhere, that device's.
    const Allocation* allocation = find_allocation(ptr);
    bool accessible = pages_state(ptr, size) == 2;
    for (size_t i = 0; i < count; ++i) {
        if (allocation != nullptr && desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE &&
            desc[i].location.id == allocation->device) {
            accessible = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        }
    }
    if (!set_pages_accessible(ptr, size, accessible)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    for (auto it = allocations().lower_bound(ptr);
         it != allocations().end() && it->first < ptr + size; ++it) {
        for (size_t i = 0; i < count; ++i) {
            const uint64_t bit = uint64_t{1} << desc[i].location.id;
            if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE) {
                it->second.accessors = desc[i].flags == CU_MEM_ACCESS_FLAGS_PROT_NONE
                                           ? it->second.accessors & ~bit
                                           : it->second.accessors | bit;
            }
        }
    }
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAccess(unsigned long long* flags, const CUmemLocation* location,
                            CUdeviceptr ptr) {
    const int state = pages_state(ptr, 1);
    if (flags == nullptr || location == nullptr || state == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *flags = state == 2 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* handle, void* addr) {
    const Allocation* allocation = find_allocation(reinterpret_cast<uint64_t>(addr));
    if (handle == nullptr || allocation == nullptr || allocation->kind != Kind::vmm) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *handle = vmm().mapped.at(allocation->base);
    ++vmm().handles.at(*handle).references;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* prop,
                                                    CUmemGenericAllocationHandle handle) {
    const Handle* found = find_handle(handle);
    if (prop == nullptr || found == nullptr) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *prop = found->properties;
    return CUDA_SUCCESS;
}

// The descriptor is a file that holds the memory's name (share.hpp).
CUresult sim_cuMemExportToShareableHandle(void* shareableHandle,
                                          CUmemGenericAllocationHandle handle,
                                          CUmemAllocationHandleType handleType,
                                          unsigned long long flags) {
    const Handle* found = find_handle(handle);
    if (shareableHandle == nullptr || found == nullptr || flags != 0 ||
        handleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        (found->properties.requestedHandleTypes & handleType) == 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int file = memfd_create("simcuda-handle", MFD_CLOEXEC);
    const SharedName name = shared_name(*found->physical);
    if (file < 0 || write(file, &name, sizeof name) != sizeof name) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *static_cast<int*>(shareableHandle) = file;
    return CUDA_SUCCESS;
}

CUresult sim_cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* handle, void* osHandle,
                                            CUmemAllocationHandleType shHandleType) {
    SharedName name{};
    const int file = static_cast<int>(reinterpret_cast<intptr_t>(osHandle));
    if (handle == nullptr || shHandleType != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
        pread(file, &name, sizeof name, 0) != sizeof name) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    auto physical = open_shared(name);
    if (!physical) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    CUmemAllocationProp properties{};
    properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties.requestedHandleTypes = shHandleType;
    properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {name.device}};
    *handle = add_handle(std::move(physical), properties);
    return CUDA_SUCCESS;
}

// In place of a dma-buf a descriptor of the device's memory. Whole host pages of what one mapping
// holds, other allocations in it included.
CUresult sim_cuMemGetHandleForAddressRange(void* handle, CUdeviceptr dptr, size_t size,
                                           CUmemRangeHandleType, unsigned long long) {
    constexpr uint64_t host_page = 4096;
    const Allocation* allocation = find_allocation(dptr);
    if (handle == nullptr || allocation == nullptr || size == 0 || size % host_page != 0 ||
        dptr % host_page != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // Virtual memory: whatever is mapped and accessible, the descriptor is the first mapping's.
    const bool virtual_memory = allocation->kind == Kind::vmm;
    const Physical* physical =
        allocation->chunk ? allocation->chunk->physical.get() : allocation->physical.get();
    const uint64_t base = allocation->chunk ? allocation->chunk->address : allocation->base;
    if (physical == nullptr ||
        (virtual_memory ? pages_state(dptr, size) != 2 : dptr + size > base + physical->bytes())) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    const int file = fcntl(physical->file(), F_DUPFD_CLOEXEC, 0);
    if (file < 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    *static_cast<int*>(handle) = file;
    return CUDA_SUCCESS;
}
