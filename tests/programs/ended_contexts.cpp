// Very many contexts, one after another, each with memory of all sizes, of which some is freed,
// some being freed and some live when it ends: as servers have them that reset the device after
// each job.
//
//   ended_contexts created N    made and destroyed
//   ended_contexts reset N      the primary context, reset
//   ended_contexts beside N     as created, while another thread works in a context of its own,
//                               makes and destroys streams, and asks about memory that may be gone;
//                               as often for each context that ends, however fast the driver is
//
// Prints by how many bytes the heap grew for each context, after the first hundred.
#include <cuda.h>
#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "tests/programs/program.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t most_written = mib / 16;

std::atomic<bool> over{false};
std::atomic<int> contexts_made{0};
std::mutex working;  // held by the thread beside while it has something of its own
std::atomic<CUdeviceptr> somewhere{0};

long long heap_bytes() {
    const std::lock_guard lock(working);
    const struct mallinfo2 info = mallinfo2();
    return static_cast<long long>(info.uordblks) + static_cast<long long>(info.hblkhd);
}

void work_beside(CUcontext context) {
    CHECK(cuCtxSetCurrent(context));
    for (int turns = 0; !over;) {
        if (turns >= 10 * contexts_made) {
            std::this_thread::sleep_for(std::chrono::microseconds(50));
            continue;
        }
        ++turns;
        const std::lock_guard lock(working);
        CUstream stream = nullptr;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        const CUdeviceptr block = allocate(3 * mib);
        CHECK(cuMemsetD8Async(block, 1, mib, stream));
        CHECK(cuMemFreeAsync(block, stream));
        CUdeviceptr base = 0;
        std::size_t bytes = 0;
        (void)cuMemGetAddressRange(&base, &bytes, somewhere);
        CHECK(cuStreamSynchronize(stream));  // the next block is another stream's
        CHECK(cuStreamDestroy(stream));
    }
}

// The current context's. Work needs no more than a part of a block to be the block's work. Half of
// the frees are in a stream's order, and complete when asked for.
void use_memory() {
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    for (std::size_t bytes = 512; bytes <= 8 * mib; bytes *= 4) {
        const CUdeviceptr kept = allocate(bytes);
        const CUdeviceptr freed = allocate(bytes);
        CHECK(cuMemsetD8Async(freed, 1, std::min(bytes, most_written), stream));
        if (bytes < mib) {
            CHECK(cuMemFreeAsync(freed, stream));
        } else {
            release(freed);
        }
        somewhere = kept;
    }
}

void use_created() {
    CUcontext context = nullptr;
    CHECK(program::create_context(&context));
    use_memory();
    CHECK(cuCtxDestroy(context));
}

void use_primary() {
    CUcontext context = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&context, 0));
    CHECK(cuCtxSetCurrent(context));
    use_memory();
    CHECK(cuDevicePrimaryCtxReset(0));
    CHECK(cuDevicePrimaryCtxRelease(0));
}

}  // namespace

int main(int argc, char** argv) {
    constexpr int first = 100;
    if (argc != 3) {
        return 2;
    }
    const bool reset = std::strcmp(argv[1], "reset") == 0;
    const int count = std::atoi(argv[2]);
    CHECK(cuInit(0));
    std::thread beside;
    if (std::strcmp(argv[1], "beside") == 0) {
        beside = std::thread(work_beside, use_device());
    }
    long long before = 0;
    for (int i = 0; i < first + count; ++i) {
        if (i == first) {
            before = heap_bytes();
        }
        ++contexts_made;
        reset ? use_primary() : use_created();
    }
    SAY("%lld\n", (heap_bytes() - before) / count);
    if (beside.joinable()) {
        over = true;
        beside.join();
    }
    return 0;
}
