// Nothing overlaps and nothing is lost: 3000 steps of a seeded random program that allocates blocks
// of 1 byte to 3 MB, fills each with its own pattern through the driver, and reads it back complete
// before it frees it. All blocks are aligned to 256 bytes at least.
//
// Recorded: as many frees as allocations, nothing live.
#include <cstring>
#include <random>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

struct Block {
    CUdeviceptr address;
    std::size_t bytes;
    unsigned char pattern;
};

bool holds_its_pattern(const Block& block, std::vector<unsigned char>& host) {
    host.resize(block.bytes);
    CHECK(cuMemcpyDtoH(host.data(), block.address, block.bytes));
    // All bytes are the first one when the range equals itself moved by one.
    return host[0] == block.pattern &&
           std::memcmp(host.data(), host.data() + 1, block.bytes - 1) == 0;
}

}  // namespace

int main() {
    use_device();
    std::mt19937 random(2024);
    std::vector<Block> blocks;
    std::vector<unsigned char> host;
    int allocations = 0;
    int damaged = 0;
    int misaligned = 0;
    const auto take = [&](std::size_t index) {
        damaged += holds_its_pattern(blocks[index], host) ? 0 : 1;
        release(blocks[index].address);
        blocks[index] = blocks.back();
        blocks.pop_back();
    };
    for (int step = 0; step < 3000; ++step) {
        if (blocks.size() < 40 && random() % 2 == 0) {
            const std::size_t limit = random() % 8 == 0 ? 3000000 : 20000;
            Block block{0, 1 + random() % limit, static_cast<unsigned char>(random() % 256)};
            block.address = allocate(block.bytes);
            misaligned += block.address % 256 == 0 ? 0 : 1;
            CHECK(cuMemsetD8(block.address, block.pattern, block.bytes));
            blocks.push_back(block);
            ++allocations;
        } else if (!blocks.empty()) {
            take(random() % blocks.size());
        }
    }
    while (!blocks.empty()) {
        take(blocks.size() - 1);
    }
    SAY("%d allocations, %d damaged, %d misaligned\n", allocations, damaged, misaligned);
    return damaged + misaligned == 0 ? 0 : 1;
}
