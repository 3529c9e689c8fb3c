// Captures that begin while many threads free memory: each free asks or records fences that must
// stay out of captures, in several contexts, whose frees do not wait for each other. A capture
// begins after few of the others' frees, not when there happens to be none.
//
//   capture_storm THREADS CAPTURES
//
// Says on standard error how many frees of the others there were while captures began. Ends with
// code 5 when a capture never begins.
#include <atomic>
#include <thread>
#include <vector>

#include "spinning.hpp"

using namespace program;

namespace {

std::atomic<bool> over{false};
std::atomic<unsigned long long> frees{0};

void free_in(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    const CUdeviceptr worked_on = allocate(1 << 20);
    while (!over) {
        const CUdeviceptr block = allocate(1 << 20);
        CHECK(cuMemsetD8Async(worked_on, 1, 512, stream));
        CHECK(cuMemFreeAsync(block, stream));
        ++frees;
    }
    CHECK(cuStreamSynchronize(stream));
    release(worked_on);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3) {
        return 2;
    }
    const int thread_count = std::atoi(argv[1]);
    const int captures = std::atoi(argv[2]);
    std::vector<CUcontext> contexts{use_device()};
    while (contexts.size() < 4) {
        CUcontext context = nullptr;
        CHECK(program::create_context(&context));
        contexts.push_back(context);
    }
    CHECK(cuCtxSetCurrent(contexts[0]));
    must_end_within(60);
    std::vector<std::thread> threads;
    for (int number = 0; number < thread_count; ++number) {
        threads.emplace_back(free_in, contexts[static_cast<std::size_t>(number) % contexts.size()]);
    }
    while (frees < 1000) {
        std::this_thread::yield();
    }
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    unsigned long long beside = 0;
    for (int i = 0; i < captures; ++i) {
        const unsigned long long before = frees;
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
        beside += frees - before;
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphDestroy(graph));
        const unsigned long long until = frees + static_cast<unsigned long long>(thread_count);
        while (frees < until) {  // nor do captures keep frees from going on
            std::this_thread::yield();
        }
    }
    over = true;
    for (std::thread& thread : threads) {
        thread.join();
    }
    must_end_within(0);
    ::dprintf(STDERR_FILENO, "%llu frees during %d begins of a capture\n", beside, captures);
    SAY("done\n");
    return 0;
}
