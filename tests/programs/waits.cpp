// Four threads, each twelve rounds: 700 allocations of a page that are freed at once, then a wait
// for the thread's stream, an event or all of the device. In every other round the device still
// works when the wait begins: a host function on the stream sleeps.
//
// Recorded: 4 × 12 × 700 = 33,600 device allocations of 4096 bytes, all freed.
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

constexpr int thread_count = 4;
constexpr int rounds = 12;
constexpr int pairs = 700;

void CUDA_CB sleep_a_while(void* /*unused*/) {
    ::usleep(300);
}

void work(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    CUevent event = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int round = 0; round < rounds; ++round) {
        for (int i = 0; i < pairs; ++i) {
            release(allocate(4096));
        }
        if (round % 2 == 0) {
            CHECK(cuLaunchHostFunc(stream, sleep_a_while, nullptr));
        }
        switch (round % 3) {
            case 0:
                CHECK(cuStreamSynchronize(stream));
                break;
            case 1:
                CHECK(cuEventRecord(event, stream));
                CHECK(cuEventSynchronize(event));
                break;
            default:
                CHECK(cuCtxSynchronize());
        }
    }
    CHECK(cuEventDestroy(event));
    CHECK(cuStreamDestroy(stream));
}

}  // namespace

int main() {
    const CUcontext context = use_device();
    std::vector<std::thread> threads;
    threads.reserve(thread_count);
    for (int i = 0; i < thread_count; ++i) {
        threads.emplace_back(work, context);
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    SAY("%d threads, %d waits\n", thread_count, thread_count * rounds);
    return 0;
}
