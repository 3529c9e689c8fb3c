// The CUDA runtime's memory functions, built with the shared and with the static runtime. Prints
// every answer that is the same on all devices.
//
// Recorded: device: cudaMalloc 10,000 and 4,000,000 bytes, cudaMallocPitch, cudaMalloc3D;
// managed 20,000; pinned 30,000 and 40,000; async pool 50,000; array 1; all freed.
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <vector>

namespace {

void answer(const char* what, cudaError_t error) {
    std::printf("%s: %d\n", what, static_cast<int>(error));
    (void)cudaGetLastError();
}

}  // namespace

int main() {
    void* block = nullptr;
    void* large = nullptr;
    answer("cudaMalloc", cudaMalloc(&block, 10000));
    answer("cudaMalloc, large", cudaMalloc(&large, 4000000));
    std::vector<unsigned char> host(10000, 0x42);
    std::vector<unsigned char> back(10000);
    answer("cudaMemcpy to the device",
           cudaMemcpy(block, host.data(), 10000, cudaMemcpyHostToDevice));
    answer("cudaMemcpy back", cudaMemcpy(back.data(), block, 10000, cudaMemcpyDeviceToHost));
    std::printf("the same bytes: %s\n", host == back ? "yes" : "no");

    void* nothing = &host;
    answer("cudaMalloc of 0 bytes", cudaMalloc(&nothing, 0));
    std::printf("its pointer is null: %s\n", nothing == nullptr ? "yes" : "no");
    answer("cudaMalloc to nowhere", cudaMalloc(nullptr, 16));
    answer("cudaMalloc of 2^60 bytes", cudaMalloc(&nothing, std::size_t{1} << 60));
    answer("cudaFree(NULL)", cudaFree(nullptr));
    answer("cudaFree(0x1234)", cudaFree(reinterpret_cast<void*>(std::uintptr_t{0x1234})));
    answer("cudaFree(interior)", cudaFree(static_cast<char*>(block) + 512));
    answer("cudaFree", cudaFree(block));
    answer("cudaFree again", cudaFree(block));
    answer("cudaFree, large", cudaFree(large));

    void* pitched = nullptr;
    std::size_t pitch = 0;
    answer("cudaMallocPitch", cudaMallocPitch(&pitched, &pitch, 1000, 20));
    answer("cudaFree, pitch", cudaFree(pitched));
    cudaPitchedPtr cube{};
    answer("cudaMalloc3D", cudaMalloc3D(&cube, make_cudaExtent(100, 10, 5)));
    answer("cudaFree, 3D", cudaFree(cube.ptr));

    void* managed = nullptr;
    answer("cudaMallocManaged", cudaMallocManaged(&managed, 20000));
    answer("cudaFree, managed", cudaFree(managed));
    void* pinned = nullptr;
    answer("cudaMallocHost", cudaMallocHost(&pinned, 30000));
    answer("cudaFreeHost", cudaFreeHost(pinned));
    answer("cudaHostAlloc", cudaHostAlloc(&pinned, 40000, cudaHostAllocDefault));
    answer("cudaFreeHost", cudaFreeHost(pinned));

    void* async = nullptr;
    answer("cudaMallocAsync", cudaMallocAsync(&async, 50000, cudaStream_t{nullptr}));
    answer("cudaFreeAsync", cudaFreeAsync(async, nullptr));
    answer("cudaStreamSynchronize", cudaStreamSynchronize(nullptr));

    cudaArray_t array = nullptr;
    const cudaChannelFormatDesc format =
        cudaCreateChannelDesc(32, 0, 0, 0, cudaChannelFormatKindFloat);
    answer("cudaMallocArray", cudaMallocArray(&array, &format, 32, 32));
    answer("cudaFreeArray", cudaFreeArray(array));
    answer("cudaDeviceSynchronize", cudaDeviceSynchronize());
    return 0;
}
