// The plainest program: 100 allocations of 1000, 2000, ... 100,000 bytes and one of 30,000,000;
// every second one of the hundred is freed, and the large one.
//
// Recorded: 101 device allocations, 35,050,000 bytes; 51 frees; 50 live, 2,550,000 bytes.
#include "program.hpp"

using namespace program;

int main() {
    use_device();
    CUdeviceptr blocks[100];
    for (std::size_t i = 0; i < 100; ++i) {
        blocks[i] = allocate((i + 1) * 1000);
    }
    const CUdeviceptr large = allocate(30000000);
    for (std::size_t i = 0; i < 100; i += 2) {
        release(blocks[i]);
    }
    release(large);
    SAY("101 allocations, 51 frees\n");
    return 0;
}
