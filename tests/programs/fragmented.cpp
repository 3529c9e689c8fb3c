// Fills the device but for 24 MiB with blocks of 1 MiB, frees every second one and asks for 64 MiB:
// enough is free, but nowhere in one piece. Then frees the rest and asks again.
//
// Recorded: one out-of-memory failure under a pool; nothing live.
#include <vector>

#include "program.hpp"

using namespace program;

int main() {
    use_device();
    constexpr std::size_t mib = std::size_t{1} << 20;
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free, &total));
    std::vector<CUdeviceptr> blocks(free / mib - 24);
    for (CUdeviceptr& block : blocks) {
        block = allocate(mib);
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
        release(blocks[i]);
    }
    CUdeviceptr large = 0;
    CUresult result = cuMemAlloc(&large, 64 * mib);
    SAY("every second block freed, then %d\n", static_cast<int>(result));
    for (std::size_t i = 1; i < blocks.size(); i += 2) {
        release(blocks[i]);
    }
    result = cuMemAlloc(&large, 64 * mib);
    SAY("all freed, then %d\n", static_cast<int>(result));
    if (result == CUDA_SUCCESS) {
        release(large);
    }
    return 0;
}
