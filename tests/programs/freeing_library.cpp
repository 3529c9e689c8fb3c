// A library whose name is what memlab knows of it. Under PyTorch's name it frees as a caller that
// does not rely on cudaFree's wait, and allocates for a cache of its own; under cuDNN's it may take
// a private table of the driver.
#include <cuda.h>

extern "C" __attribute__((visibility("default"))) CUresult free_device_memory(CUdeviceptr address) {
    const CUresult result = cuMemFree(address);
    asm volatile("");  // after the call: no jump, this frame stays on the stack
    return result;
}

extern "C" __attribute__((visibility("default"))) CUresult take_memory(CUdeviceptr* address,
                                                                       size_t bytes) {
    const CUresult result = cuMemAlloc(address, bytes);
    asm volatile("");
    return result;
}

extern "C" __attribute__((visibility("default"))) CUresult take_table(const CUuuid* name) {
    const void* table = nullptr;
    const CUresult result = cuGetExportTable(&table, name);
    asm volatile("");
    return result;
}
