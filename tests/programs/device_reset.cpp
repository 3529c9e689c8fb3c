// cudaDeviceReset at the end, as many programs do, with memory still allocated; and then CUDA once
// more.
//
// Recorded: 3 device allocations: 2 of 600,000 bytes, lost by the reset, 1 of 700,000, freed.
#include <cuda_runtime.h>

#include <cstdio>

int main() {
    void* block = nullptr;
    std::printf("%d", static_cast<int>(cudaMalloc(&block, 600000)));
    std::printf("%d\n", static_cast<int>(cudaMalloc(&block, 600000)));
    std::printf("cudaDeviceReset: %d\n", static_cast<int>(cudaDeviceReset()));
    std::printf("%d", static_cast<int>(cudaMalloc(&block, 700000)));
    std::printf("%d\n", static_cast<int>(cudaFree(block)));
    std::printf("cudaDeviceReset: %d\n", static_cast<int>(cudaDeviceReset()));
    return 0;
}
