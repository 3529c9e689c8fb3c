// A library that frees device memory: under PyTorch's name it is a caller that does not rely on
// cudaFree's wait, under any other name it is anybody.
#include <cuda.h>

extern "C" __attribute__((visibility("default"))) CUresult free_device_memory(CUdeviceptr address) {
    const CUresult result = cuMemFree(address);
    asm volatile("");  // after the call: no jump, this frame stays on the stack
    return result;
}
