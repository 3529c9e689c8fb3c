#include "interpose/driver/vmm_pages.hpp"

#include <algorithm>
#include <iterator>
#include <new>
#include <utility>

#include "interpose/driver/driver.hpp"

namespace memlab::interpose {
VmmPages::VmmPages(CUdevice device) : device_(device), accessors_{device} {}

bool VmmPages::supported() {
    if (support_ != Support::unknown) {
        return support_ == Support::yes;
    }
    support_ = Support::no;
    if (!device_has(device_, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)) {
        return false;
    }
    // A program may make memory of cuMemAlloc's synchronous (CU_POINTER_ATTRIBUTE_SYNC_MEMOPS).
    // Mapped memory is by its context's flag only, which drivers before CUDA 12.1 cannot set.
    if (driver()->cuCtxSetFlags == nullptr) {
        return false;
    }
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    properties_.location.id = device_;
    properties_.allocFlags.gpuDirectRDMACapable =
        device_has(device_, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) ? 1 : 0;
    if (device_has(device_, newer_cuda::device_decompresses)) {
        properties_.allocFlags.usage = newer_cuda::usage_decompress;  // as cuMemAlloc's
    }
    if (device_has(device_, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)) {
        properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
        shareable_ = true;
    }
    std::size_t granularity = 0;
    const CUresult result = call_real(&Driver::cuMemGetAllocationGranularity, &granularity,
                                      &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    if (result == CUDA_SUCCESS && granularity != 0 && page % granularity == 0 &&
        accessible_to_all()) {
        support_ = Support::yes;
    }
    return support_ == Support::yes;
}

// Where it is not, a copy made in another device's context could not be allowed.
bool VmmPages::accessible_to_all() const {
    int devices = 0;
    if (call_real(&Driver::cuDeviceGetCount, &devices) != CUDA_SUCCESS) {
        return false;
    }
    for (CUdevice other = 0; other < devices; ++other) {
        int can_access = 0;
        if (other != device_ && (call_real(&Driver::cuDeviceCanAccessPeer, &can_access, other,
                                           device_) != CUDA_SUCCESS ||
                                 can_access == 0)) {
            return false;
        }
    }
    return true;
}

CUresult VmmPages::reserve(std::uint64_t bytes, std::uint64_t* base) {
    const threads::LockGuard lock(mutex_);
    if (!supported()) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUdeviceptr address = 0;
    const CUresult result =
        call_real(&Driver::cuMemAddressReserve, &address, std::size_t{bytes}, std::size_t{page},
                  CUdeviceptr{0}, static_cast<unsigned long long>(0));
    *base = address;
    if (result != CUDA_SUCCESS) {
        return result;
    }
    try {
        reserved_[address] = bytes;
    } catch (const std::bad_alloc&) {
        call_real(&Driver::cuMemAddressFree, address, std::size_t{bytes});
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    return CUDA_SUCCESS;
}

CUresult VmmPages::release(std::uint64_t base, std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    if (reserved_.erase(base) == 0) {
        return CUDA_ERROR_INVALID_VALUE;  // gone with its context: the addresses may be another's
    }
    return call_real(&Driver::cuMemAddressFree, CUdeviceptr{base}, std::size_t{bytes});
}

CUresult VmmPages::map_chunk(std::uint64_t address, std::uint64_t bytes) {
    CUmemGenericAllocationHandle handle = 0;
    const auto create = [&] {
        return call_real(&Driver::cuMemCreate, &handle, std::size_t{bytes},
                         static_cast<const CUmemAllocationProp*>(&properties_), 0ULL);
    };
    CUresult result = create();
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY &&
        properties_.requestedHandleTypes != CU_MEM_HANDLE_TYPE_NONE && mapped_.empty()) {
        properties_.requestedHandleTypes = CU_MEM_HANDLE_TYPE_NONE;  // some systems refuse it
        properties_.allocFlags.usage = 0;
        shareable_ = false;
        result = create();
    }
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = call_real(&Driver::cuMemMap, CUdeviceptr{address}, std::size_t{bytes}, std::size_t{0},
                       handle, 0ULL);
    call_real(&Driver::cuMemRelease, handle);
    return result;
}

CUresult VmmPages::map(std::uint64_t address, std::uint64_t bytes, std::uint64_t chunk) {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    if (!owns_locked(address)) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    // What takes host memory comes first.
    const std::vector<CUmemAccessDesc> access = accesses();
    Ranges fresh{{address, address + bytes}};
    std::uint64_t done = 0;
    CUresult result = CUDA_SUCCESS;
    while (done != bytes && result == CUDA_SUCCESS) {
        const std::uint64_t piece = std::min(chunk, bytes - done);
        result = map_chunk(address + done, piece);
        done += result == CUDA_SUCCESS ? piece : 0;
    }
    if (result == CUDA_SUCCESS) {
        result = call_real(&Driver::cuMemSetAccess, CUdeviceptr{address}, std::size_t{bytes},
                           static_cast<const CUmemAccessDesc*>(access.data()), access.size());
    }
    if (result != CUDA_SUCCESS) {
        if (done != 0) {
            call_real(&Driver::cuMemUnmap, CUdeviceptr{address}, std::size_t{done});
        }
        return result;
    }
    insert_mapped(fresh.extract(fresh.begin()));
    return CUDA_SUCCESS;
}

CUresult VmmPages::unmap(std::uint64_t address, std::uint64_t bytes) {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    if (!owns_locked(address)) {
        return CUDA_ERROR_INVALID_VALUE;  // gone with its context: the addresses may be another's
    }
    erase_mapped(address, bytes);
    return unmap_present(address, bytes);
}

bool VmmPages::owns(std::uint64_t address) {
    const threads::LockGuard lock(mutex_);
    return owns_locked(address);
}

bool VmmPages::owns_locked(std::uint64_t address) const {
    const auto above = reserved_.upper_bound(address);
    if (above == reserved_.begin()) {
        return false;
    }
    const auto& [start, bytes] = *std::prev(above);
    return address - start < bytes;
}

void VmmPages::release_all() {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    for (const auto& [start, end] : mapped_) {
        unmap_present(start, end - start);
    }
    mapped_.clear();
    for (const auto& [start, bytes] : reserved_) {
        call_real(&Driver::cuMemAddressFree, CUdeviceptr{start}, std::size_t{bytes});
    }
    reserved_.clear();
}

CUresult VmmPages::set_peer(CUdevice accessor, bool enabled) {
    if (accessor == device_) {
        return CUDA_SUCCESS;
    }
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    // A copy may be under way.
    const bool copies = (copies_allowed_.load(std::memory_order_relaxed) & bit(accessor)) != 0;
    return enabled || !copies ? grant(accessor, enabled) : CUDA_SUCCESS;
}

void VmmPages::allow_first_copy(CUdevice accessor) {
    const threads::LockGuard lock(mutex_);
    wait_for_move();
    if (grant(accessor, true) == CUDA_SUCCESS) {
        copies_allowed_.fetch_or(bit(accessor), std::memory_order_relaxed);
    }
}

CUresult VmmPages::grant(CUdevice accessor, bool enabled) {
    const auto known = std::find(accessors_.begin(), accessors_.end(), accessor);
    if ((known != accessors_.end()) == enabled) {
        return CUDA_SUCCESS;
    }
    if (enabled) {
        accessors_.push_back(accessor);
    } else {
        accessors_.erase(known);
    }
    const CUmemAccessDesc description = access_of(
        accessor, enabled ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_NONE);
    CUresult result = CUDA_SUCCESS;
    for (const auto& [start, end] : mapped_) {
        const CUresult answer = set_access_where_present(start, end, description);
        if (answer != CUDA_SUCCESS) {
            result = answer;
        }
    }
    return result;
}

void VmmPages::insert_mapped(Ranges::node_type range) noexcept {
    std::uint64_t& start = range.key();
    std::uint64_t& end = range.mapped();
    auto above = mapped_.lower_bound(start);
    if (above != mapped_.end() && above->first == end) {
        end = above->second;
        above = mapped_.erase(above);
    }
    if (above != mapped_.begin()) {
        const auto below = std::prev(above);
        if (below->second == start) {
            start = below->first;
            mapped_.erase(below);
        }
    }
    mapped_.insert(std::move(range));
}

void VmmPages::erase_mapped(std::uint64_t address, std::uint64_t bytes) noexcept {
    const auto above = mapped_.upper_bound(address);
    if (above == mapped_.begin()) {
        return;
    }
    const auto holder = std::prev(above);
    const std::uint64_t end = holder->second;
    if (holder->first < address) {
        holder->second = address;
        if (address + bytes < end) {
            try {
                mapped_[address + bytes] = end;
            } catch (const std::bad_alloc&) {  // what is mapped there stays until the process ends
            }
        }
        return;
    }
    Ranges::node_type rest = mapped_.extract(holder);
    if (address + bytes < end) {
        rest.key() = address + bytes;
        mapped_.insert(std::move(rest));
    }
}

}  // namespace memlab::interpose
