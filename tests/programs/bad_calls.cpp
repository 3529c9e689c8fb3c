// Wrong calls, and the answers that plain CUDA gives: null, foreign, interior and second frees,
// impossible sizes. The program prints every answer.
//
// Recorded: 2 device allocations, 2 frees, and the out-of-memory failures; a refused free changes
// nothing.
#include <cstdint>

#include "program.hpp"

using namespace program;

namespace {

void answer(const char* what, CUresult result) {
    SAY("%s: %d\n", what, static_cast<int>(result));
}

}  // namespace

int main() {
    use_device();
    const CUdeviceptr block = allocate(100000);
    const CUdeviceptr other = allocate(100);
    CUdeviceptr address = 0;
    void* pinned = nullptr;
    int on_stack = 0;
    CHECK(cuMemAllocHost(&pinned, 4096));

    answer("cuMemFree(0)", cuMemFree(0));
    answer("cuMemFree(0x1234)", cuMemFree(0x1234));
    answer("cuMemFree(stack)", cuMemFree(reinterpret_cast<std::uintptr_t>(&on_stack)));
    answer("cuMemFree(pinned)", cuMemFree(reinterpret_cast<std::uintptr_t>(pinned)));
    answer("cuMemFree(interior)", cuMemFree(block + 512));
    answer("cuMemFree(interior, unaligned)", cuMemFree(block + 1));
    answer("cuMemFree(block)", cuMemFree(block));
    answer("cuMemFree(block) again", cuMemFree(block));
    answer("cuMemFree(other)", cuMemFree(other));
    answer("cuMemFree(other) again", cuMemFree(other));
    answer("cuMemAlloc of 0 bytes", cuMemAlloc(&address, 0));
    answer("cuMemAlloc to nowhere", cuMemAlloc(nullptr, 16));
    answer("cuMemAlloc of 2^60 bytes", cuMemAlloc(&address, std::size_t{1} << 60));
    answer("cuMemAlloc of SIZE_MAX bytes", cuMemAlloc(&address, SIZE_MAX));
    answer("cuMemFreeHost(pinned)", cuMemFreeHost(pinned));
    return 0;
}
