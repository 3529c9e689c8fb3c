// Fills the device with 16 blocks of a sixteenth of its memory each until one does not fit, frees
// all, and then fits a block of half the memory: cached memory in pieces must not stand in its way.
// The first three blocks have the name "index" and data type and shape, the others "results".
//
// Recorded: at least one out-of-memory failure; nothing live.
#include <memlab/memlab.h>

#include <vector>

#include "program.hpp"

using namespace program;

int main() {
    use_device();
    std::size_t free_bytes = 0;
    std::size_t total_bytes = 0;
    CHECK(cuMemGetInfo(&free_bytes, &total_bytes));
    std::vector<CUdeviceptr> blocks;
    CUresult result = CUDA_SUCCESS;
    while (blocks.size() < 20) {
        CUdeviceptr block = 0;
        result = cuMemAlloc(&block, total_bytes / 16);
        if (result != CUDA_SUCCESS) {
            break;
        }
        const auto* const pointer = reinterpret_cast<const void*>(block);
        if (blocks.size() < 3) {
            (void)memlab_label_detail(pointer, "index", "int64[8388608]");
        } else {
            (void)memlab_label(pointer, "results");
        }
        blocks.push_back(block);
    }
    SAY("the device is full: %d\n", static_cast<int>(result));
    for (CUdeviceptr block : blocks) {
        release(block);
    }
    CUdeviceptr half = 0;
    SAY("half of it in one piece: %d\n", static_cast<int>(cuMemAlloc(&half, total_bytes / 2)));
    SAY("and back: %d\n", static_cast<int>(cuMemFree(half)));
    return 0;
}
