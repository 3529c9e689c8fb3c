// Two contexts of one device. One is destroyed with its memory in it, the other is emptied first.
// Then the program goes on with the primary context. With the argument "reset" it uses the primary
// context only, and resets it with memory in it.
//
// Recorded ("two"): 7 device allocations: 3 × 100,000 bytes in the first context, lost with it;
// 3 × 200,000 in the second, freed; 1 × 300,000 in the primary context, freed. Nothing live.
// Recorded ("reset"): 2 device allocations of 400,000 bytes lost by the reset, 1 of 500,000 after
// it, freed. Nothing live.
#include <cstring>

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

}  // namespace

int main(int argc, char** argv) {
    if (argc == 2 && std::strcmp(argv[1], "reset") == 0) {
        primary_reset();
    } else {
        two_contexts();
    }
    return 0;
}
