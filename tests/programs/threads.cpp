// Eight threads, each 200 times: two allocations of sizes of its own, freed in the other order; one
// in ten frees is done by main's thread after all have ended; one block per thread is kept.
//
// Recorded: 8 × 401 = 3208 device allocations, 3200 frees, 8 live of 12,345 bytes each.
#include <array>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

constexpr int thread_count = 8;
constexpr int rounds = 200;

void work(CUcontext context, std::size_t number, std::vector<CUdeviceptr>* for_main) {
    CHECK(cuCtxSetCurrent(context));
    for (std::size_t round = 0; round < rounds; ++round) {
        const CUdeviceptr small = allocate(number * 1000 + round + 1);
        const CUdeviceptr large = allocate(1500000 + number * 100000 + round);
        release(large);
        if (round % 10 == 0) {
            for_main->push_back(small);
        } else {
            release(small);
        }
    }
    allocate(12345);
}

}  // namespace

int main() {
    const CUcontext context = use_device();
    std::array<std::vector<CUdeviceptr>, thread_count> left;
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < thread_count; ++i) {
        threads.emplace_back(work, context, i, &left[i]);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    int freed_here = 0;
    for (const std::vector<CUdeviceptr>& blocks : left) {
        for (CUdeviceptr block : blocks) {
            release(block);
            ++freed_here;
        }
    }
    SAY("8 threads, %d blocks freed by main\n", freed_here);
    return 0;
}
