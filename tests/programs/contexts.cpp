// Two contexts of one device. One is destroyed with its memory in it, the other is emptied first.
// Then the program goes on with the primary context. With the argument "reset" it uses the primary
// context only, and resets it with memory in it. With "elsewhere" another thread destroys the
// context that is current here: then no allocation and no free succeeds, not even of another
// context's memory.
//
// Recorded ("two"): 7 device allocations: 3 × 100,000 bytes in the first context, lost with it;
// 3 × 200,000 in the second, freed; 1 × 300,000 in the primary context, freed. Nothing live.
// Recorded ("reset"): 2 device allocations of 400,000 bytes lost by the reset, 1 of 500,000 after
// it, freed. Nothing live.
// Recorded ("elsewhere"): 2 × 600,000 bytes, one freed where its context is current, one where none
// is; 1 × 700,000 lost with its context.
#include <cstring>
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

void two_contexts() {
    CHECK(cuInit(0));
    CUcontext first = nullptr;
    CUcontext second = nullptr;
    CHECK(program::create_context(&first));
    for (int i = 0; i < 3; ++i) {
        allocate(100000);
    }
    CHECK(program::create_context(&second));
    CUdeviceptr blocks[3];
    for (CUdeviceptr& block : blocks) {
        block = allocate(200000);
    }
    CHECK(cuCtxDestroy(first));
    SAY("first context destroyed with its memory\n");
    for (CUdeviceptr block : blocks) {
        CHECK(cuMemsetD8(block, 1, 200000));
        release(block);
    }
    CHECK(cuCtxDestroy(second));
    SAY("second context emptied and destroyed\n");
    use_device();
    release(allocate(300000));
    SAY("primary context used\n");
}

void primary_reset() {
    use_device();
    allocate(400000);
    allocate(400000);
    CHECK(cuDevicePrimaryCtxReset(0));
    SAY("primary context reset with its memory\n");
    use_device();
    const CUdeviceptr block = allocate(500000);
    CHECK(cuMemsetD8(block, 1, 500000));
    release(block);
    SAY("primary context used again\n");
}

void destroyed_elsewhere() {
    CHECK(cuInit(0));
    CUcontext living = nullptr;
    CUcontext destroyed = nullptr;
    CHECK(program::create_context(&living));
    const CUdeviceptr blocks[2] = {allocate(600000), allocate(600000)};
    CHECK(program::create_context(&destroyed));
    allocate(700000);
    std::thread([&] { CHECK(cuCtxDestroy(destroyed)); }).join();
    CUdeviceptr block = 0;
    SAY("free: %d\n", cuMemFree(blocks[0]));
    SAY("allocation: %d\n", cuMemAlloc(&block, 600000));
    std::thread([&] { SAY("free, no context current: %d\n", cuMemFree(blocks[1])); }).join();
    CHECK(cuCtxSetCurrent(living));
    SAY("free, its context current: %d\n", cuMemFree(blocks[0]));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "elsewhere") == 0) {
        destroyed_elsewhere();
    } else if (argc == 2 && std::strcmp(argv[1], "reset") == 0) {
        primary_reset();
    } else {
        two_contexts();
    }
    return 0;
}
