// Takes 16 MiB and then 500 MiB of the GPU; the second may fail. In a cgroup that allows less than
// the GPU has, it does.
//
// Recorded: 1 device allocation of 16 MiB, another if it succeeded; no free.
#include "tests/programs/program.hpp"

using namespace program;

int main() {
    use_device();
    CUdeviceptr first = 0;
    CUdeviceptr second = 0;
    CHECK(cuMemAlloc(&first, std::size_t{16} << 20));
    SAY("second: %d\n", static_cast<int>(cuMemAlloc(&second, std::size_t{500} << 20)));
    return 0;
}
