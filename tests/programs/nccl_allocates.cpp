// A library of a name as NCCL's and its plugins', which creates and maps memory of its own.
#include <cuda.h>

#include <cstddef>

namespace {

constexpr std::size_t page = std::size_t{2} << 20;

}  // namespace

/// So many pages, mapped and accessible; 0: an error.
extern "C" __attribute__((visibility("default"))) unsigned long long nccl_allocates(int pages) {
    const std::size_t bytes = page * static_cast<std::size_t>(pages);
    CUmemAllocationProp wanted{};
    wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
    CUmemAccessDesc access{};
    access.location = wanted.location;
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    const bool made = cuMemCreate(&handle, bytes, &wanted, 0) == CUDA_SUCCESS &&
                      cuMemAddressReserve(&address, bytes, 0, 0, 0) == CUDA_SUCCESS &&
                      cuMemMap(address, bytes, 0, handle, 0) == CUDA_SUCCESS &&
                      cuMemSetAccess(address, bytes, &access, 1) == CUDA_SUCCESS &&
                      cuMemRelease(handle) == CUDA_SUCCESS;
    return made ? address : 0;
}
