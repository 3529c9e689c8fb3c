// The library that plugin_host loads: linked with libcuda, which the host itself is not.
#include "program.hpp"

extern "C" __attribute__((visibility("default"))) int plugin_work(int live) {
    program::use_device();
    const CUdeviceptr first = program::allocate(40000);
    const CUdeviceptr second = program::allocate(60000);
    program::release(first);
    if (live == 0) {
        program::release(second);
    }
    return live == 0 ? 0 : 1;
}

// An allocation and its free, in a library that is gone soon. The context must be current.
extern "C" __attribute__((visibility("default"))) int plugin_pair() {
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, 5000) != CUDA_SUCCESS) {
        return 1;
    }
    return cuMemFree(address) == CUDA_SUCCESS ? 0 : 1;
}
