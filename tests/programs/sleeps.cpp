// A program that has its threads sleep while they wait for the GPU
// (cudaDeviceScheduleBlockingSync): frees that wait for a kernel take next to no processor time.
//
//   sleeps start      from the start: cuDevicePrimaryCtxSetFlags before there is a context
//   sleeps later      cuCtxSetFlags, after frees that waited
//   sleeps primary    cuDevicePrimaryCtxSetFlags, after frees that waited
//
// Prints what took too much, and "done".
#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>

#include "spinning.hpp"

// As <cuda.h> declares it, but weak: not in drivers before CUDA 12.1.
extern "C" __attribute__((weak)) CUresult CUDAAPI cuCtxSetFlags(unsigned flags);

using namespace program;

namespace {

constexpr std::size_t bytes = std::size_t{8} << 20;
constexpr auto kernel_time = std::chrono::milliseconds(500);

double processor_seconds() {
    timespec time{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// The processor time of a free beside a kernel that ends after so long.
double free_beside_a_kernel(std::chrono::milliseconds how_long) {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr block = allocate(bytes);
    Spin spin(stream);
    spin.start();
    std::thread other([&] {
        std::this_thread::sleep_for(how_long);
        spin.go();
    });
    const double before = processor_seconds();
    release(block);
    const double took = processor_seconds() - before;
    other.join();
    CHECK(cuStreamSynchronize(stream));
    spin.done();
    CHECK(cuStreamDestroy(stream));
    return took;
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2) {
        return 2;
    }
    must_end_within(60);
    CHECK(cuInit(0));
    if (std::strcmp(argv[1], "start") == 0) {
        CHECK(cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
        use_device();
    } else {
        use_device();
        for (int i = 0; i < 3; ++i) {
            (void)free_beside_a_kernel(std::chrono::milliseconds(20));
        }
        CHECK(std::strcmp(argv[1], "later") == 0 && cuCtxSetFlags != nullptr
                  ? cuCtxSetFlags(CU_CTX_SCHED_BLOCKING_SYNC)
                  : cuDevicePrimaryCtxSetFlags(0, CU_CTX_SCHED_BLOCKING_SYNC));
    }
    for (int i = 0; i < 3; ++i) {
        const double took = free_beside_a_kernel(kernel_time);
        if (took > 0.05 * std::chrono::duration<double>(kernel_time).count()) {
            SAY("free %d: %.3f s of processor time\n", i, took);
        }
    }
    SAY("done\n");
    return 0;
}
