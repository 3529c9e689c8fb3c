// A context is destroyed by one thread while another frees memory that it had used: cuCtxDestroy
// waits for work of that context, and nobody touches it afterwards. Or the memory was freed before
// that, and work of another context is still to use it. Then every context ends while one of its
// streams captures, and memory is freed and had again. Then contexts end with their memory while
// other threads allocate, who get the same addresses.
//
// Recorded: "peers" 40 rounds of 3 allocations, "pending" 6 allocations, "capture" 2 allocations,
// "reused" any number, nothing live.
#include <cuda.h>

#include <atomic>
#include <cstring>
#include <thread>
#include <vector>

#include "program.hpp"
#include "tests/programs/foreign_work.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = 1 << 20;
constexpr int rounds = 40;

void peers() {
    const CUcontext a = use_device();
    // Plain CUDA's free does not wait for another context's copy: what lies beside it keeps its
    // page from the other thread.
    const CUdeviceptr beside = allocate(mib);
    std::atomic<bool> stop{false};
    std::thread freeing([&] {
        CHECK(cuCtxSetCurrent(a));
        CUstream stream = nullptr;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        while (!stop) {
            const CUdeviceptr p = allocate(3 * mib);
            CHECK(cuMemsetD8Async(p, 1, 3 * mib, stream));
            release(p);
        }
        CHECK(cuStreamDestroy(stream));
    });
    for (int round = 0; round < rounds; ++round) {
        CUcontext b = nullptr;
        CHECK(program::create_context(&b));
        const CUdeviceptr in_b = allocate(mib);
        CHECK(cuCtxSetCurrent(a));
        const CUdeviceptr in_a = allocate(mib);
        CHECK(cuMemsetD8(in_a, 2, mib));
        CHECK(cuCtxSetCurrent(b));
        CUstream stream = nullptr;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuMemcpyDtoDAsync(in_b, in_a, mib, stream));
        CHECK(cuCtxSetCurrent(a));
        release(in_a);
        CHECK(cuCtxDestroy(b));
    }
    stop = true;
    freeing.join();
    release(beside);
}

void pending() {
    const CUcontext a = use_device();
    const std::size_t most = most_of_the_device();
    const CUdeviceptr p = allocate(most);
    CUcontext b = nullptr;
    CHECK(program::create_context(&b));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuMemcpyDtoDAsync(allocate(mib), p, mib, stream));
    CHECK(cuCtxSetCurrent(a));
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    if (auto* slow = if_simulated<decltype(simcuda_set_work_time)>("simcuda_set_work_time")) {
        slow(stream, 1'000'000);
    }
    CHECK(cuMemcpyDtoDAsync(p, p + mib, mib, stream));
    release(p);
    CHECK(cuCtxDestroy(b));
    for (int i = 0; i < 3; ++i) {
        release(allocate(3 * mib));
    }
    CHECK(cuStreamSynchronize(stream));
    release(allocate(most));
}

void captures() {
    const CUcontext first = use_device();
    const std::size_t most = most_of_the_device();
    const CUdeviceptr p = allocate(most);
    CUcontext second = nullptr;
    CHECK(program::create_context(&second));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    CHECK(cuCtxDestroy(second));
    CHECK(cuCtxSetCurrent(first));
    release(p);
    release(allocate(most));
}

/// Memory of the kinds whose addresses the driver hands out again.
std::vector<CUdeviceptr> allocate_some() {
    std::vector<CUdeviceptr> some;
    for (int i = 0; i < 10; ++i) {
        some.push_back(allocate(5 * mib));
        CHECK(cuMemAllocManaged(&some.emplace_back(), 3 * mib, CU_MEM_ATTACH_GLOBAL));
    }
    return some;
}

void reused() {
    const int ends =
        if_simulated<decltype(simcuda_set_work_time)>("simcuda_set_work_time") != nullptr
            ? 200
            : 10;  // a real context takes a while
    const CUcontext first = use_device();
    std::atomic<int> left{2};
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; ++i) {
        threads.emplace_back([&] {
            for (int round = 0; round < ends; ++round) {
                CUcontext context = nullptr;
                CHECK(program::create_context(&context));
                allocate_some();
                CHECK(cuCtxDestroy(context));
            }
            --left;
        });
        threads.emplace_back([&] {
            CHECK(cuCtxSetCurrent(first));
            while (left != 0) {
                for (const CUdeviceptr each : allocate_some()) {
                    release(each);
                }
            }
        });
    }
    for (std::thread& each : threads) {
        each.join();
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "peers") == 0) {
        peers();
    } else if (argc == 2 && std::strcmp(argv[1], "pending") == 0) {
        pending();
    } else if (argc == 2 && std::strcmp(argv[1], "capture") == 0) {
        captures();
    } else if (argc == 2 && std::strcmp(argv[1], "reused") == 0) {
        reused();
    } else {
        return 2;
    }
    SAY("done\n");
    return 0;
}
