// Lesson: "allocated" is what the program holds, "reserved" is what the cache took from the driver
// for it; freeing lowers the first, only emptying the cache lowers the second.
//
// One tensor of 1,000,000 float32 (4,000,000 bytes) lives and dies, with a mark after each step.
//
// Run:       MEMLAB_BACKEND=classic LD_PRELOAD=libmemlab.so ./sample_cache_lines &&
//            memlab-report memlab.sample_*.json
// Look for:  the marks with the two curves beside them:
//                start               0.00 MiB allocated     0.00 MiB reserved
//                after tensor        3.81                  20.00
//                after del           0.00                  20.00
//                after empty_cache   0.00                   0.00
//            3.81 MiB is the tensor; it is served from a 20 MiB segment, the size that the cache
//            takes for anything between 1 and 10 MiB, as PyTorch does. nvidia-smi would show the
//            right column. Where memory is mapped (MEMLAB_BACKEND=vmm) it is 4.00 MiB.
#include <memlab/memlab.h>

#include <vector>

#include "sample.cuh"

namespace {

constexpr int elements = 1000000;
constexpr std::size_t tensor_bytes = elements * sizeof(float);

__global__ void fill(float* tensor, int count, float value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        tensor[i] = value;
    }
}

}  // namespace

int main() {
    CHECK(cudaFree(nullptr));  // starts CUDA, so that the first line shows a context without memory
    memlab_mark("start");
    std::printf("start\n");

    float* tensor = nullptr;
    CHECK(cudaMalloc(&tensor, tensor_bytes));
    CHECK(cudaMemset(tensor, sample::untouched_byte, tensor_bytes));
    fill<<<(elements + 255) / 256, 256>>>(tensor, elements, 3.0F);
    CHECK(cudaGetLastError());
    std::vector<float> host(elements);
    CHECK(cudaMemcpy(host.data(), tensor, tensor_bytes, cudaMemcpyDeviceToHost));
    if (!sample::untouched(host.data(), host.size())) {
        for (float value : host) {
            sample::require(value == 3.0F, "an element of the filled tensor is not 3");
        }
    }
    memlab_mark("after tensor");
    std::printf("after tensor: %d elements, %zu bytes\n", elements, tensor_bytes);

    CHECK(cudaFree(tensor));
    memlab_mark("after del");
    std::printf("after del\n");

    memlab_empty_cache();
    memlab_mark("after empty_cache");
    std::printf("after empty_cache\n");
    return 0;
}
