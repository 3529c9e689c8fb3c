// Fills the device except 24 MiB with blocks of one size, frees every second one, and asks for 64
// MiB and for all that is said to be free, except a page, in one piece; for several sizes. Of
// blocks of a page and more plain CUDA has half of the device back; of 1 MiB, two to a page,
// nothing, so that there 64 MiB are too much. Ends with code 4 where less is available than is
// said.
//
// `large`: fills a large device except 12 GiB, those with blocks of a little less than a page,
// frees every second one, and asks for 40 % of the 12 GiB in one piece.
//
// Recorded: one out-of-memory failure, of the first size; nothing live.
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t mib = std::size_t{1} << 20;
constexpr std::size_t page = 2 * mib;

std::size_t free_bytes() {
    std::size_t free = 0;
    std::size_t total = 0;
    CHECK(cuMemGetInfo(&free, &total));
    return free;
}

/// The answer to a request in one piece, which is freed again.
CUresult ask_for(std::size_t bytes) {
    const std::size_t said = free_bytes();
    CUdeviceptr large = 0;
    const CUresult result = cuMemAlloc(&large, bytes);
    if (result == CUDA_SUCCESS) {
        release(large);
    } else if (bytes + page <= said) {
        SAY("%zu bytes were refused and %zu said to be free\n", bytes, said);
        ::_exit(4);
    }
    return result;
}

int on_a_large_device() {
    constexpr std::size_t gib = std::size_t{1} << 30;
    constexpr std::size_t most = 12 * gib;
    constexpr std::size_t bytes = page - (std::size_t{64} << 10);
    allocate((free_bytes() - most) / page * page);
    std::vector<CUdeviceptr> blocks(most / 100 * 95 / page);
    for (CUdeviceptr& each : blocks) {
        each = allocate(bytes);
    }
    for (std::size_t i = 0; i < blocks.size(); i += 2) {
        release(blocks[i]);
    }
    SAY("40 %% of what there was: %d\n", static_cast<int>(ask_for(most / 10 * 4)));
    return 0;
}

}  // namespace

int main(int argc, char** /*argv*/) {
    use_device();
    if (argc > 1) {
        return on_a_large_device();
    }
    for (const std::size_t bytes : {mib, 2 * mib, 3 * mib, 5 * mib + 512, 20 * mib}) {
        std::vector<CUdeviceptr> blocks;
        while (free_bytes() >= 24 * mib + bytes + page) {
            blocks.push_back(allocate(bytes));
        }
        for (std::size_t i = 0; i < blocks.size(); i += 2) {
            release(blocks[i]);
        }
        const CUresult some = ask_for(64 * mib);
        SAY("of %zu bytes, every second block freed: %d", bytes, static_cast<int>(some));
        SAY(", all that is free: %d\n",
            static_cast<int>(ask_for((free_bytes() - page) / page * page)));
        for (std::size_t i = 1; i < blocks.size(); i += 2) {
            release(blocks[i]);
        }
        SAY("all freed: %d\n", static_cast<int>(ask_for(64 * mib)));
    }
    return 0;
}
