// Lesson: an in-place operation (x.add_(1)) needs no memory, its out-of-place twin (x = x + 1)
// allocates a new tensor at every step and for a moment holds two.
//
// The same eight additions are done both ways on a tensor of 2,000,000 float32 (8,000,000 bytes).
//
// Run:       LD_PRELOAD=libmemlab.so ./sample_inplace && memlab-report memlab.sample_*.json
// Look for:  the sites. add_in_place has none of its own; the one cudaMalloc of add_out_of_place
//            has eight allocations, 64,000,000 bytes in all, each freed one step later. The
//            allocated curve is at one tensor up to the mark "in place" and peaks at two after it.
#include <memlab/memlab.h>

#include <vector>

#include "sample.cuh"

namespace {

constexpr int elements = 2000000;
constexpr std::size_t tensor_bytes = elements * sizeof(float);
constexpr int steps = 8;

__global__ void add(const float* in, float* out, int count, float value) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) {
        out[i] = in[i] + value;
    }
}

void launch_add(const float* in, float* out) {
    add<<<(elements + 255) / 256, 256>>>(in, out, elements, 1.0F);
    CHECK(cudaGetLastError());
}

/// x.add_(1)
void add_in_place(float* x) {
    launch_add(x, x);
}

/// x = x + 1: the caller gets the new tensor, the old one is freed.
float* add_out_of_place(float* x) {
    float* result = nullptr;
    CHECK(cudaMalloc(&result, tensor_bytes));
    launch_add(x, result);
    CHECK(cudaFree(x));
    return result;
}

/// Every element must have been counted up from 0 to `expected`; a tensor of zeros is accepted,
/// because where kernels compute nothing it is still as it was.
void verify(const float* x, float expected) {
    std::vector<float> host(elements);
    CHECK(cudaMemcpy(host.data(), x, tensor_bytes, cudaMemcpyDeviceToHost));
    for (float value : host) {
        sample::require(value == expected || host.front() == 0.0F, "an element was not counted up");
    }
}

}  // namespace

int main() {
    float* x = nullptr;
    CHECK(cudaMalloc(&x, tensor_bytes));
    CHECK(cudaMemset(x, 0, tensor_bytes));

    for (int step = 0; step < steps; ++step) {
        add_in_place(x);
    }
    verify(x, steps);
    memlab_mark("in place");
    std::printf("in place:     %d additions, 0 allocations\n", steps);

    for (int step = 0; step < steps; ++step) {
        x = add_out_of_place(x);
    }
    memlab_mark("out of place");
    std::printf("out of place: %d additions, %d allocations of %zu bytes\n", steps, steps,
                tensor_bytes);
    CHECK(cudaFree(x));
    return 0;
}
