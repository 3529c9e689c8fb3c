// cuMemGetInfo: what the program freed counts as free, whether a cache keeps it or not. Prints only
// relations that hold on every device.
//
// Recorded: 1 device allocation of 64 MiB, 1 free.
#include "program.hpp"

using namespace program;

int main() {
    use_device();
    std::size_t before = 0;
    std::size_t during = 0;
    std::size_t after = 0;
    std::size_t total = 0;
    std::size_t device_total = 0;
    CHECK(cuMemGetInfo(&before, &total));
    CHECK(cuDeviceTotalMem(&device_total, 0));
    const CUdeviceptr block = allocate(std::size_t{64} << 20);
    CHECK(cuMemGetInfo(&during, &total));
    release(block);
    CHECK(cuMemGetInfo(&after, &total));
    SAY("allocating takes from free: %s\n",
        before - during >= (std::size_t{64} << 20) ? "yes" : "no");
    SAY("freeing gives it back: %s\n", after - during >= (std::size_t{64} << 20) ? "yes" : "no");
    SAY("total is the device's total: %s\n", total <= device_total ? "yes" : "no");
    return 0;
}
