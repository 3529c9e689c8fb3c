// What memory holds that the driver or memlab hands out: whether each byte is the one that the
// first argument says, for memory that somebody wrote before, of every kind of allocation, in and
// beside stream captures, on two threads, and used at once in streams that depend on no other. A
// line for each. With "behind" as the second argument: memory that a kernel still writes as it is
// freed.
//
// Natively with 0x00: all of it on a GPU, since the driver clears what it hands out.
#include <atomic>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>

#include "simulated.hpp"

using namespace program;

namespace {

unsigned char expected = 0;
bool all_right = true;

constexpr unsigned char written = 0x5a;

void say(const char* what, bool right) {
    SAY("%s: %s\n", what, right ? "as expected" : "something else");
    all_right = all_right && right;
}

/// Leaves blocks of this size behind that hold something.
void leave_written(std::size_t bytes) {
    CUdeviceptr blocks[3] = {};
    for (CUdeviceptr& block : blocks) {
        block = allocate(bytes);
        CHECK(cuMemsetD8(block, written, bytes));
    }
    CHECK(cuCtxSynchronize());
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
}

bool fresh_is_right(std::size_t bytes) {
    const CUdeviceptr block = allocate(bytes);
    const bool right = all_bytes_are(block, bytes, expected);
    CHECK(cuMemsetD8(block, written, bytes));
    CHECK(cuCtxSynchronize());
    release(block);
    return right;
}

void of_each_size() {
    for (const std::size_t bytes :
         {std::size_t{100}, std::size_t{300} << 10, std::size_t{4} << 20, std::size_t{33} << 20}) {
        leave_written(bytes);
        const bool first = fresh_is_right(bytes);
        say(("cuMemAlloc of " + std::to_string(bytes)).c_str(), first && fresh_is_right(bytes));
    }
}

void pitched() {
    leave_written(std::size_t{1} << 20);
    CUdeviceptr block = 0;
    std::size_t pitch = 0;
    CHECK(cuMemAllocPitch(&block, &pitch, 1000, 1000, 4));
    say("cuMemAllocPitch", all_bytes_are(block, pitch * 1000, expected));
    release(block);
}

/// The first user of a pool's memory is another, so only what memlab fills holds a pattern there.
void stream_ordered(CUstream stream) {
    const auto right = [&](CUstream in) {
        CUdeviceptr block = 0;
        CHECK(cuMemAllocAsync(&block, 100000, in));
        std::vector<unsigned char> seen(100000);
        CHECK(cuMemcpyDtoHAsync(seen.data(), block, seen.size(), in));
        CHECK(cuStreamSynchronize(in));
        CHECK(cuMemFreeAsync(block, in));
        return std::all_of(seen.begin(), seen.end(),
                           [](unsigned char byte) { return byte == expected; });
    };
    const bool own = right(stream);
    const bool per_thread = right(CU_STREAM_PER_THREAD);
    say("cuMemAllocAsync", own && per_thread && right(nullptr));
}

void in_a_capture(CUstream stream) {
    constexpr std::size_t bytes = 90000;
    leave_written(bytes);
    const CUdeviceptr target = allocate(bytes);
    CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    const CUdeviceptr block = allocate(bytes);
    CHECK(cuMemcpyDtoDAsync(target, block, bytes, stream));
    CUgraph graph = nullptr;
    CHECK(cuStreamEndCapture(stream, &graph));
    std::size_t nodes = 0;
    CHECK(cuGraphGetNodes(graph, nullptr, &nodes));
    say("in a capture", nodes == 1 && all_bytes_are(block, bytes, expected));
    CHECK(cuGraphDestroy(graph));
    release(block);
    release(target);
}

void beside_a_capture(CUcontext context) {
    constexpr std::size_t bytes = 90000;
    leave_written(bytes);
    std::atomic<int> step{0};
    std::size_t nodes = 1;
    std::thread other([&] {
        CHECK(cuCtxSetCurrent(context));
        CUstream stream = nullptr;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        CHECK(cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
        step = 1;
        while (step != 2) {
            std::this_thread::yield();
        }
        CUgraph graph = nullptr;
        CHECK(cuStreamEndCapture(stream, &graph));
        CHECK(cuGraphGetNodes(graph, nullptr, &nodes));
        CHECK(cuGraphDestroy(graph));
        CHECK(cuStreamDestroy(stream));
    });
    while (step != 1) {
        std::this_thread::yield();
    }
    const CUdeviceptr block = allocate(bytes);
    step = 2;
    other.join();
    say("beside a capture", nodes == 0 && all_bytes_are(block, bytes, expected));
    release(block);
}

void on_two_threads(CUcontext context) {
    std::atomic<int> wrong{0};
    const auto work = [&] {
        CHECK(cuCtxSetCurrent(context));
        CUstream stream = nullptr;
        CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        std::vector<unsigned char> seen(50000);
        for (int i = 0; i < 200; ++i) {
            const CUdeviceptr block = allocate(seen.size());
            CHECK(cuMemcpyDtoHAsync(seen.data(), block, seen.size(), stream));
            CHECK(cuMemsetD8Async(block, written, seen.size(), stream));
            CHECK(cuStreamSynchronize(stream));
            wrong += std::all_of(seen.begin(), seen.end(),
                                 [](unsigned char byte) { return byte == expected; })
                         ? 0
                         : 1;
            release(block);
        }
        CHECK(cuStreamDestroy(stream));
    };
    std::thread other(work);
    work();
    other.join();
    say("on two threads", wrong == 0);
}

/// Keeps the null stream busy with a kernel that writes the block, frees that, and takes as much
/// again. With memory for one such block only (MEMLAB_LIMIT) it is the same.
void behind_its_last_kernel() {
    const auto kernel = control<decltype(simcuda_kernel)>("simcuda_kernel");
    const auto close = control<decltype(simcuda_close_stream)>("simcuda_close_stream");
    const auto open = control<decltype(simcuda_open_stream)>("simcuda_open_stream");
    const std::size_t bytes = std::size_t{40} << 20;
    const CUdeviceptr block = allocate(bytes);
    CHECK(cuMemsetD8(block, written, bytes));
    close(nullptr);
    const simcuda_access writes = {block, bytes, 1, 0};
    CHECK(static_cast<CUresult>(kernel(nullptr, 1000, &writes, 1)));
    CHECK(cuMemsetD8Async(block, written, bytes, nullptr));
    release(block);
    CUcontext context = nullptr;
    CHECK(cuCtxGetCurrent(&context));
    std::atomic<bool> opened{false};
    std::thread opens([&] {
        CHECK(cuCtxSetCurrent(context));
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        opened = true;
        open(nullptr);
    });
    const CUdeviceptr again = allocate(bytes);
    const bool over = opened || again != block;
    opens.join();
    SAY("same address: %s\n", again == block ? "yes" : "no");
    say("behind its last kernel", over && all_bytes_are(again, bytes, expected));
    release(again);
}

}  // namespace

int main(int argc, char** argv) {
    expected = static_cast<unsigned char>(std::strtoul(argc > 1 ? argv[1] : "0x00", nullptr, 16));
    const CUcontext context = use_device();
    if (argc > 2) {
        behind_its_last_kernel();
        return all_right ? 0 : 1;
    }
    CUstream stream = nullptr;
    CHECK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    of_each_size();
    pitched();
    stream_ordered(stream);
    in_a_capture(stream);
    beside_a_capture(context);
    on_two_threads(context);
    CHECK(cuStreamDestroy(stream));
    return all_right ? 0 : 1;
}
