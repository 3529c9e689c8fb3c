// Work that waits for work: a kernel on stream A spins until one on stream B says go, and between
// the two launches the program allocates (from memory that it freed before, and more than that)
// and, with "free", frees.
//
//   spin alloc   plain CUDA finishes, and so must memlab
//   spin free    plain CUDA's cudaFree would wait for A and never return; with
//                MEMLAB_FREE_SYNC=never it must finish: no fence may put B's work behind A's
//   spin one     the same, but all work before the spinning kernel went to A as well
//
// On a GPU the kernel spins on a word of memory; on the simulated driver A is kept from completing
// until a host function on B opens it. Ends with code 5 when B's work has not run after 20 seconds,
// or as many as a second argument says.
//
// Recorded ("alloc"): 116 device allocations, 76 freed before the kernel, 40 after it; nothing
// live.
#include <cuda.h>

#include <cstring>
#include <vector>

#include "spinning.hpp"

using namespace program;

namespace {

constexpr std::size_t sizes[] = {1000, 100 << 10, 3 << 20, 30 << 20};

}  // namespace

int main(int argc, char** argv) {
    if (argc != 2 && argc != 3) {
        return 2;
    }
    const bool one = std::strcmp(argv[1], "one") == 0;
    const bool frees = one || std::strcmp(argv[1], "free") == 0;
    use_device();
    CUstream a = nullptr;
    CUstream b = nullptr;
    CHECK(cuStreamCreate(&a, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&b, CU_STREAM_NON_BLOCKING));
    Spin spin(a);

    // Memory that both streams have used, so that there is something to be reused.
    std::vector<CUdeviceptr> blocks;
    for (int round = 0; round < 19; ++round) {
        for (const std::size_t bytes : sizes) {
            blocks.push_back(allocate(bytes));
            CHECK(cuMemsetD8Async(blocks.back(), 1, bytes, one || round % 2 == 0 ? a : b));
        }
    }
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
    blocks.clear();

    must_end_within(argc == 3 ? static_cast<unsigned>(std::strtoul(argv[2], nullptr, 10)) : 20);
    spin.start();
    for (int round = 0; round < 10; ++round) {
        for (const std::size_t bytes : sizes) {
            // The last ones are more than was freed before.
            const std::size_t more = round < 8 ? bytes : 4 * bytes;
            blocks.push_back(allocate(more));
            CHECK(cuMemsetD8Async(blocks.back(), 2, more, b));
            if (frees && blocks.size() % 2 == 0) {
                release(blocks.front());
                blocks.erase(blocks.begin());
            }
        }
    }
    spin.go(b);
    CHECK(cuStreamSynchronize(b));
    SAY("the second stream is done\n");
    CHECK(cuStreamSynchronize(a));
    SAY("the first stream is done\n");
    must_end_within(0);
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
    spin.done();
    return 0;
}
