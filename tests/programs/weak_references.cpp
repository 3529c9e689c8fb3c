// Finds out by weak references whether there is a driver, CUPTI, or NVML. Linked with none.
//
// Recorded: without a driver nothing; with one preloaded 1 device allocation of 5,000 bytes, 1
// free.
#include <cuda.h>
#include <unistd.h>

#include <cstdio>

// As <cuda.h> declares them, but weak.
extern "C" {
__attribute__((weak)) CUresult CUDAAPI cuInit(unsigned flags);
__attribute__((weak)) CUresult CUDAAPI cuDevicePrimaryCtxRetain(CUcontext* context,
                                                                CUdevice device);
__attribute__((weak)) CUresult CUDAAPI cuCtxSetCurrent(CUcontext context);
__attribute__((weak)) CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr* address, size_t bytes);
__attribute__((weak)) CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address);
__attribute__((weak)) int cuptiSubscribe(void* subscriber, void* callback, void* user);
__attribute__((weak)) int nvmlDeviceGetMemoryInfo(void* device, void* memory);
}

namespace {
// A reference in data, beside those in code.
CUresult (*volatile free_function)(CUdeviceptr) = &cuMemFree_v2;
}  // namespace

int main() {
    ::dprintf(STDOUT_FILENO, "cuptiSubscribe: %s\n", cuptiSubscribe != nullptr ? "there" : "null");
    ::dprintf(STDOUT_FILENO, "nvmlDeviceGetMemoryInfo: %s\n",
              nvmlDeviceGetMemoryInfo != nullptr ? "there" : "null");
    ::dprintf(STDOUT_FILENO, "cuMemFree: %s\n", free_function != nullptr ? "there" : "null");
    if (cuInit == nullptr) {
        ::dprintf(STDOUT_FILENO, "cuInit: null\n");
        return 0;
    }
    ::dprintf(STDOUT_FILENO, "cuInit: there, %d\n", static_cast<int>(cuInit(0)));
    CUcontext context = nullptr;
    CUdeviceptr block = 0;
    if (cuDevicePrimaryCtxRetain(&context, 0) != CUDA_SUCCESS ||
        cuCtxSetCurrent(context) != CUDA_SUCCESS || cuMemAlloc(&block, 5000) != CUDA_SUCCESS) {
        return 3;
    }
    return free_function(block) == CUDA_SUCCESS ? 0 : 3;
}
