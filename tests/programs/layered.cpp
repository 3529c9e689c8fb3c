// A program that finds the driver as the CUDA runtime does (dlopen, dlsym, cuGetProcAddress), and
// what preloaded layers of somebody else see of it (quota_layer.c, dlsym_layer.c).
//
// Recorded: 3 device allocations of 40,000 bytes in all, 3 frees. With "exceed": blocks of 1 MiB
// until none is left, at most 64, all freed.
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <vector>

namespace {

PFN_cuGetProcAddress_v12000 get_proc_address;

template <class Function>
Function resolve(const char* name) {
    void* function = nullptr;
    CUdriverProcAddressQueryResult found = CU_GET_PROC_ADDRESS_SUCCESS;
    if (get_proc_address(name, &function, 12000, 0, &found) != CUDA_SUCCESS ||
        function == nullptr) {
        std::printf("no %s\n", name);
        std::fflush(stdout);
        ::_exit(4);
    }
    return reinterpret_cast<Function>(function);
}

int exceed(PFN_cuMemAlloc_v3020 alloc, PFN_cuMemFree_v3020 free) {
    std::vector<CUdeviceptr> blocks;
    CUresult result = CUDA_SUCCESS;
    while (blocks.size() < 64 && result == CUDA_SUCCESS) {
        CUdeviceptr block = 0;
        result = alloc(&block, std::size_t{1} << 20);
        if (result == CUDA_SUCCESS) {
            blocks.push_back(block);
        }
    }
    std::printf("%zu blocks, then %d\n", blocks.size(), static_cast<int>(result));
    for (const CUdeviceptr block : blocks) {
        if (free(block) != CUDA_SUCCESS) {
            std::printf("a free failed\n");
        }
    }
    return 0;
}

}  // namespace

int main(int count, char** words) {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW);
    get_proc_address = reinterpret_cast<PFN_cuGetProcAddress_v12000>(
        driver == nullptr ? nullptr : ::dlsym(driver, "cuGetProcAddress_v2"));
    if (get_proc_address == nullptr) {
        std::printf("no driver\n");
        return 4;
    }
    CUcontext context = nullptr;
    if (resolve<PFN_cuInit_v2000>("cuInit")(0) != CUDA_SUCCESS ||
        resolve<PFN_cuDevicePrimaryCtxRetain_v7000>("cuDevicePrimaryCtxRetain")(&context, 0) !=
            CUDA_SUCCESS ||
        resolve<PFN_cuCtxSetCurrent_v4000>("cuCtxSetCurrent")(context) != CUDA_SUCCESS) {
        return 3;
    }
    const auto alloc = resolve<PFN_cuMemAlloc_v3020>("cuMemAlloc");
    const auto free = resolve<PFN_cuMemFree_v3020>("cuMemFree");
    if (count > 1 && std::strcmp(words[1], "exceed") == 0) {
        return exceed(alloc, free);
    }
    for (const std::size_t bytes : {10000U, 10000U, 20000U}) {
        CUdeviceptr block = 0;
        if (alloc(&block, bytes) != CUDA_SUCCESS || free(block) != CUDA_SUCCESS) {
            return 3;
        }
    }
    const auto by_dlsym = reinterpret_cast<PFN_cuMemAlloc_v3020>(::dlsym(driver, "cuMemAlloc_v2"));
    std::printf("the same function by dlsym: %s\n", by_dlsym == alloc ? "yes" : "no");

    const auto quota = reinterpret_cast<void (*)(int*)>(::dlsym(RTLD_DEFAULT, "quota_counts"));
    if (quota != nullptr) {
        int seen[5] = {};
        quota(seen);
        std::printf("the quota saw %d starts, %d allocations, %d frees\n", seen[1], seen[2],
                    seen[3]);
        std::printf("it was asked %s\n", seen[0] > 0 && seen[4] > 0 ? "both ways" : "less");
    }
    const auto layer = reinterpret_cast<int (*)()>(::dlsym(RTLD_DEFAULT, "layer_lookups"));
    if (layer != nullptr) {
        const auto parent = reinterpret_cast<pid_t (*)()>(::dlsym(RTLD_DEFAULT, "getppid"));
        std::printf("the layer saw %s, its function %s\n", layer() > 2 ? "the look-ups" : "none",
                    parent() == 4711 ? "serves" : "is passed by");
    }
    return 0;
}
