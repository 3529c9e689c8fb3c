// A plugin that deep_bound.cpp loads with RTLD_DEEPBIND or into a namespace of its own. It finds
// the driver by itself and works on memory that the program gives it.
#include <cuda.h>
#include <dlfcn.h>

namespace {

template <class Function>
Function* of_driver(const char* name) {
    void* const library = ::dlopen("libcuda.so.1", RTLD_NOW);
    return reinterpret_cast<Function*>(library == nullptr ? nullptr : ::dlsym(library, name));
}

}  // namespace

extern "C" {

__attribute__((visibility("default"))) int deep_fill(CUdeviceptr address, size_t bytes,
                                                     CUstream stream) {
    auto* const fill =
        of_driver<CUresult(CUdeviceptr, unsigned char, size_t, CUstream)>("cuMemsetD8Async");
    return fill == nullptr ? -1 : static_cast<int>(fill(address, 1, bytes, stream));
}

__attribute__((visibility("default"))) int deep_free(CUdeviceptr address) {
    auto* const free = of_driver<CUresult(CUdeviceptr)>("cuMemFree_v2");
    return free == nullptr ? -1 : static_cast<int>(free(address));
}
}
