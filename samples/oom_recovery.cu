// Lesson: running out of memory is recoverable, if what the failed attempt holds is given back
// before the next one. The attempt therefore ends completely, and the retry with half the batch
// starts outside of it (in PyTorch: outside of the except clause, which keeps the frame alive).
//
// A step needs two buffers whose size is proportional to the batch. Sizes are fractions of the
// device's memory, so that the program runs out of it on any device: batch 64 fails at its second
// buffer, batch 32 fits.
//
// Run:       LD_PRELOAD=libmemlab.so ./sample_oom_recovery && memlab-report memlab.sample_*.json
// Look for:  one OOM, with the size that was asked for, what was free, and who held the rest: the
//            first buffer of the same step. After it the program goes on, nothing stays live, and
//            the memory of the failed attempt is what the smaller batch is served from.
#include "sample.cuh"

namespace {

__global__ void first_value(int* buffer, int value) {
    buffer[0] = value;
}

/// One step; false when its memory did not fit. Holds nothing when it returns.
bool try_step(std::size_t bytes_per_buffer) {
    int* buffers[2] = {nullptr, nullptr};
    bool fits = true;
    for (int*& buffer : buffers) {
        const cudaError_t error = cudaMalloc(&buffer, bytes_per_buffer);
        if (error == cudaErrorMemoryAllocation) {
            (void)cudaGetLastError();  // the error is dealt with: later calls must not report it
            buffer = nullptr;
            fits = false;
            break;
        }
        CHECK(error);
    }
    if (fits) {
        first_value<<<1, 1>>>(buffers[0], 7);
        CHECK(cudaGetLastError());
        CHECK(cudaDeviceSynchronize());
    }
    for (int* buffer : buffers) {
        CHECK(cudaFree(buffer));
    }
    return fits;
}

}  // namespace

int main() {
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    CHECK(cudaMemGetInfo(&free_bytes, &total_bytes));
    const std::size_t bytes_per_item = total_bytes / 100;  // batch 64: 2 × 64 %, batch 32: 2 × 32 %

    for (int batch = 64; batch > 0; batch /= 2) {
        if (try_step(bytes_per_item * batch)) {
            std::printf("batch %d: done\n", batch);
            return 0;
        }
        std::printf("batch %d: out of memory\n", batch);
    }
    std::printf("not even a batch of 1 fits\n");
    return 1;
}
