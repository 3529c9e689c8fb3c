// Memory of one family given back by the function of another, as CUDA allows: cuMemAllocAsync with
// cuMemFree, cuMemAlloc with cuMemFreeAsync.
//
// Recorded: 1 device and 1 async pool allocation, each freed.
#include "program.hpp"

using namespace program;

int main() {
    use_device();
    CUdeviceptr async = 0;
    CHECK(cuMemAllocAsync(&async, 70000, nullptr));
    CHECK(cuStreamSynchronize(nullptr));
    SAY("cuMemFree of an async pointer: %d\n", static_cast<int>(cuMemFree(async)));
    const CUdeviceptr device = allocate(80000);
    SAY("cuMemFreeAsync of a cuMemAlloc pointer: %d\n",
        static_cast<int>(cuMemFreeAsync(device, nullptr)));
    CHECK(cuCtxSynchronize());
    return 0;
}
