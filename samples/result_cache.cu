// Lesson: a cache of results may fill the device, if it is given up when somebody needs the memory.
// "Would it fit on a smaller card?" is then one environment variable: MEMLAB_LIMIT.
//
// 48 results of 96 MiB each, computed with a scratch buffer of 64 MiB, are kept for later. When an
// allocation fails, the older half of them is thrown away and the allocation made again: the error
// is CUDA's own, and nothing else of the program changes. Without a limit all of them fit on a
// large GPU; under one the program still ends with the same answer.
//
// Run:       MEMLAB_LIMIT=2GiB LD_PRELOAD=libmemlab.so ./sample_result_cache
//            memlab-report memlab.sample_result_cache.*.json
// Look for:  one message on stderr: what was asked for, that the device has 2 GiB by MEMLAB_LIMIT,
//            that one call site (the results) holds nearly all of it and has freed nothing, and the
//            command that names its line. The later failures are in the report, and a mark for each
//            time that results were thrown away.
#include <memlab/memlab.h>

#include <deque>

#include "sample.cuh"

namespace {

constexpr std::size_t result_bytes = std::size_t{96} << 20;
constexpr std::size_t scratch_bytes = std::size_t{64} << 20;
constexpr int items = 48;

struct Result {
    int item;
    int* memory;
};

__global__ void compute(int* scratch, int* result, int item) {
    scratch[0] = item * item;
    result[0] = scratch[0] + 1;
}

/// Gives the older half of the results up; false when there are none.
bool evict(std::deque<Result>& results) {
    const std::size_t kept = results.size() / 2;
    if (results.empty()) {
        return false;
    }
    while (results.size() > kept) {
        CHECK(cudaFree(results.front().memory));
        results.pop_front();
    }
    memlab_mark("results thrown away");
    return true;
}

/// Allocates, if need be at the expense of results. Ends the program when not even that helps.
int* allocate(std::size_t bytes, std::deque<Result>& results) {
    int* memory = nullptr;
    cudaError_t error = cudaMalloc(&memory, bytes);
    while (error == cudaErrorMemoryAllocation && evict(results)) {
        (void)cudaGetLastError();  // the error is dealt with: later calls must not report it
        error = cudaMalloc(&memory, bytes);
    }
    CHECK(error);
    return memory;
}

void verify(const Result& result) {
    int value = 0;
    CHECK(cudaMemcpy(&value, result.memory, sizeof(value), cudaMemcpyDeviceToHost));
    if (!sample::untouched(&value, 1)) {
        sample::require(value == result.item * result.item + 1, "a result is not its item's");
    }
}

}  // namespace

int main() {
    std::deque<Result> results;
    for (int item = 0; item < items; ++item) {
        int* const scratch = allocate(scratch_bytes, results);
        int* const memory = allocate(result_bytes, results);
        CHECK(cudaMemset(memory, sample::untouched_byte, sizeof(int)));
        compute<<<1, 1>>>(scratch, memory, item);
        CHECK(cudaGetLastError());
        CHECK(cudaFree(scratch));
        results.push_back({item, memory});
        verify(results.front());
        verify(results.back());
    }
    std::printf("%d results, the last of them right: %s\n", items,
                results.back().item == items - 1 ? "yes" : "no");
    while (evict(results)) {
    }
    return 0;
}
