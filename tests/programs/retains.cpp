// Contexts that are retained and released all the time, as wrapper libraries do around each of
// their calls. No release here is the last one.
//
//   retains cost      what a pair takes beside many driver allocations, compared with none: of the
//                     primary context, and of a created one (cuCtxAttach, cuCtxDetach)
//   retains beside N  two threads retain and release without a pause; another gives back 70 % of
//                     the device and takes 60 % as stream-ordered memory, N times
//
//   retains asks      how often the driver is asked for the context's state in 100 pairs, on the
//                     simulated driver
//
// Prints what went wrong, and "done".
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/programs/simulated.hpp"

using namespace program;

namespace {

std::atomic<bool> over{false};

void retain_and_release() {
    CUcontext context = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuDevicePrimaryCtxRelease(0));
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"  // they still work
void attach_and_detach() {
    CUcontext context = nullptr;
    CHECK(cuCtxAttach(&context, 0));
    CHECK(cuCtxDetach(context));
}
#pragma GCC diagnostic pop

/// The fastest of many short batches: others use the processor, too.
template <class Pair>
double microseconds(const Pair& pair) {
    constexpr int batches = 300;
    constexpr int pairs = 20;
    double best = 1e9;
    for (int i = 0; i < batches; ++i) {
        const auto begin = std::chrono::steady_clock::now();
        for (int j = 0; j < pairs; ++j) {
            pair();
        }
        const std::chrono::duration<double, std::micro> took =
            std::chrono::steady_clock::now() - begin;
        best = std::min(best, took.count() / pairs);
    }
    return best;
}

template <class Pair>
void compare(const char* what, const Pair& pair) {
    constexpr int allocations = 20'000;
    const double alone = microseconds(pair);
    for (int i = 0; i < allocations; ++i) {
        void* memory = nullptr;
        CHECK(cuMemAllocHost(&memory, 64));
    }
    const double beside = microseconds(pair);
    if (beside > 3 * alone) {
        SAY("%s: %.2f us alone, %.2f us beside %d allocations\n", what, alone, beside, allocations);
    }
    ::dprintf(STDERR_FILENO, "%s: %.2f us, %.2f us\n", what, alone, beside);
}

void asks() {
    auto* const calls = control<decltype(simcuda_calls)>("simcuda_calls");
    use_device();
    (void)allocate(1000);
    const std::uint64_t before = calls("cuDevicePrimaryCtxGetState");
    for (int i = 0; i < 100; ++i) {
        retain_and_release();
    }
    SAY("asked whether it is there: %d\n",
        static_cast<int>(calls("cuDevicePrimaryCtxGetState") - before));
}

void cost() {
    use_device();
    compare("retain and release", retain_and_release);
    CUcontext context = nullptr;
    CHECK(create_context(&context));
    compare("attach and detach", attach_and_detach);
}

void beside(int rounds) {
    const CUcontext context = use_device();
    const std::size_t most = tenths_of_the_device(7);
    const std::size_t less = tenths_of_the_device(6);
    CUstream stream = nullptr;
    CUmemoryPool pool = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuDeviceGetDefaultMemPool(&pool, 0));
    std::thread wrappers[2];
    for (std::thread& each : wrappers) {
        each = std::thread([context] {
            CHECK(cuCtxSetCurrent(context));
            while (!over) {
                retain_and_release();
            }
        });
    }
    for (int i = 0; i < rounds; ++i) {
        release(allocate(most));
        CUdeviceptr ordered = 0;
        if (const CUresult result = cuMemAllocAsync(&ordered, less, stream);
            result != CUDA_SUCCESS) {
            SAY("round %d: error %d\n", i, static_cast<int>(result));
            continue;
        }
        CHECK(cuMemFreeAsync(ordered, stream));
        CHECK(cuStreamSynchronize(stream));
        CHECK(cuMemPoolTrimTo(pool, 0));
    }
    over = true;
    for (std::thread& each : wrappers) {
        each.join();
    }
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "cost") == 0) {
        cost();
    } else if (argc == 2 && std::strcmp(argv[1], "asks") == 0) {
        asks();
    } else if (argc == 3 && std::strcmp(argv[1], "beside") == 0) {
        beside(std::atoi(argv[2]));
    } else {
        return 2;
    }
    SAY("done\n");
    return 0;
}
