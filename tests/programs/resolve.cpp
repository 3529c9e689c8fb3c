// Finds the driver as the CUDA runtime does: dlopen of libcuda.so.1, dlsym of cuGetProcAddress_v2,
// everything else through it; and as ctypes does: dlsym of the versioned names. Not linked with
// libcuda. Calls the legacy and the per-thread default stream variants.
//
// Recorded: 2 device allocations (10,000 and 20,000 bytes), 2 frees; 2 async pool allocations
// (30,000 and 40,000 bytes), 2 frees. A pointer asked for twice is the same pointer twice.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdio>

namespace {

PFN_cuGetProcAddress_v12000 get_proc_address;
int newest = 13000;  // asked for: no driver takes a version later than its own

template <typename Function>
Function resolve(const char* name, int version, cuuint64_t flags) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result =
        get_proc_address(name, &function, std::min(version, newest), flags, &found);
    std::printf("%s@%d flags %d: %d, status %d, %s\n", name, version, static_cast<int>(flags),
                static_cast<int>(result), static_cast<int>(found),
                function != nullptr ? "found" : "null");
    return reinterpret_cast<Function>(function);
}

}  // namespace

int main() {
    void* driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == nullptr) {
        std::printf("no driver\n");
        return 4;
    }
    get_proc_address =
        reinterpret_cast<PFN_cuGetProcAddress_v12000>(::dlsym(driver, "cuGetProcAddress_v2"));
    if (get_proc_address == nullptr) {
        std::printf("no cuGetProcAddress\n");
        return 4;
    }
    int driver_version = 0;
    reinterpret_cast<PFN_cuDriverGetVersion_v2020>(::dlsym(driver, "cuDriverGetVersion"))(
        &driver_version);
    newest = std::min(newest, driver_version);
    const auto init = resolve<PFN_cuInit_v2000>("cuInit", 13000, 0);
    const auto retain =
        resolve<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain", 13000, 0);
    const auto set_current = resolve<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent", 13000, 0);
    CUcontext context = nullptr;
    if (init(0) != CUDA_SUCCESS || retain(&context, 0) != CUDA_SUCCESS ||
        set_current(context) != CUDA_SUCCESS) {
        return 3;
    }

    const auto alloc = resolve<PFN_cuMemAlloc_v3020>("cuMemAlloc", 13000, 0);
    const auto alloc_again = resolve<PFN_cuMemAlloc_v3020>("cuMemAlloc", 13000, 1);
    const auto free = resolve<PFN_cuMemFree_v3020>("cuMemFree", 13000, 2);
    if (alloc == nullptr || free == nullptr) {
        return 4;
    }
    const auto dlsym_alloc =
        reinterpret_cast<PFN_cuMemAlloc_v3020>(::dlsym(driver, "cuMemAlloc_v2"));
    const auto dlsym_free = reinterpret_cast<PFN_cuMemFree_v3020>(::dlsym(driver, "cuMemFree_v2"));
    std::printf("the same function each time: %s\n",
                alloc == alloc_again && alloc == dlsym_alloc && free == dlsym_free ? "yes" : "no");
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    std::printf("%d", static_cast<int>(alloc(&first, 10000)));
    std::printf("%d", static_cast<int>(dlsym_alloc(&second, 20000)));
    std::printf("%d", static_cast<int>(dlsym_free(first)));
    std::printf("%d\n", static_cast<int>(free(second)));

    const auto async = resolve<PFN_cuMemAllocAsync_v11020>("cuMemAllocAsync", 13000, 0);
    const auto async_ptsz = resolve<PFN_cuMemAllocAsync_v11020_ptsz>("cuMemAllocAsync", 13000, 2);
    const auto free_async = resolve<PFN_cuMemFreeAsync_v11020>("cuMemFreeAsync", 13000, 0);
    const auto free_async_ptsz =
        resolve<PFN_cuMemFreeAsync_v11020_ptsz>("cuMemFreeAsync", 13000, 2);
    std::printf(
        "two stream variants: %s\n",
        reinterpret_cast<void*>(async) != reinterpret_cast<void*>(async_ptsz) ? "yes" : "no");
    std::printf("%d", static_cast<int>(async(&first, 30000, nullptr)));
    std::printf("%d", static_cast<int>(async_ptsz(&second, 40000, nullptr)));
    std::printf("%d", static_cast<int>(free_async(first, nullptr)));
    std::printf("%d\n", static_cast<int>(free_async_ptsz(second, nullptr)));

    std::printf("unknown: %s\n", ::dlsym(driver, "cuNoSuchFunction") == nullptr ? "null" : "found");
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    const CUresult result = get_proc_address("cuNoSuchFunction", &function, 13000, 0, &found);
    std::printf("unknown by cuGetProcAddress: %d, status %d\n", static_cast<int>(result),
                static_cast<int>(found));
    return 0;
}
