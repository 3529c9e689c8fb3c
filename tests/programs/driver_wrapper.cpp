// A preload library of somebody else that wraps functions of the driver and counts their calls: a
// quota manager, say. It finds what it wraps by RTLD_NEXT, or in libcuda itself with
// WRAPPER_ASKS=driver.
#include <cuda.h>
#include <dlfcn.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

struct Counts {
    std::atomic<int> init{0};
    std::atomic<int> alloc{0};
    std::atomic<int> free{0};
    std::atomic<int> itself{0};  // was given its own function
};
Counts counts;

void* what_it_wraps(const char* name) {
    const char* const asks = std::getenv("WRAPPER_ASKS");
    if (asks != nullptr && std::strcmp(asks, "driver") == 0) {
        void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        return driver == nullptr ? nullptr : ::dlsym(driver, name);
    }
    return ::dlsym(RTLD_NEXT, name);
}

template <class Function, class... Arguments>
CUresult pass_on(Function own, const char* name, std::atomic<int>& count, Arguments... arguments) {
    ++count;
    const auto next = reinterpret_cast<Function>(what_it_wraps(name));
    if (next == own) {
        ++counts.itself;
        return CUDA_ERROR_UNKNOWN;
    }
    return next == nullptr ? CUDA_ERROR_NOT_FOUND : next(arguments...);
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) CUresult cuInit(unsigned flags) {
    return pass_on(&cuInit, "cuInit", counts.init, flags);
}

__attribute__((visibility("default"))) CUresult cuMemAlloc_v2(CUdeviceptr* address, size_t bytes) {
    return pass_on(&cuMemAlloc_v2, "cuMemAlloc_v2", counts.alloc, address, bytes);
}

__attribute__((visibility("default"))) CUresult cuMemFree_v2(CUdeviceptr address) {
    return pass_on(&cuMemFree_v2, "cuMemFree_v2", counts.free, address);
}

__attribute__((visibility("default"))) void wrapper_counts(int* all) {
    const int values[] = {counts.init, counts.alloc, counts.free, counts.itself};
    std::memcpy(all, values, sizeof(values));
}
}
