// A program that is linked with the driver of a CUDA that is yet to come, and calls what it added:
// nobody asks for these functions by name.
#include "tests/programs/program.hpp"

extern "C" {
CUresult cuMemFree_v3(CUdeviceptr);
CUresult cuMemsetTileAsync(CUdeviceptr, unsigned char, size_t, CUstream);
}

int main() {
    program::use_device();
    for (unsigned char value = 1; value < 4; ++value) {
        const CUdeviceptr block = program::allocate(300'000);
        unsigned char last = 0;
        SAY("fill: %d\n", cuMemsetTileAsync(block, value, 300'000, nullptr));
        CHECK(cuCtxSynchronize());
        CHECK(cuMemcpyDtoH(&last, block + 299'999, 1));
        SAY("last: %d, free: %d", last, cuMemFree_v3(block));
        SAY(", again: %d\n", cuMemFree_v3(block));
    }
    return 0;
}
