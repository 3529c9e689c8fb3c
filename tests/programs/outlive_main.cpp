// Four detached threads allocate and free in a loop while main returns: they are in the middle of
// CUDA calls, memlab's included, while the process ends.
//
// Recorded: as many allocations as there was time for, at least 400, each of 8000 bytes;
// allocations - frees = live, and at most four live.
#include <atomic>
#include <thread>

#include "program.hpp"

using namespace program;

namespace {

std::atomic<int> rounds;

void work(CUcontext context) {
    // While the process ends the driver refuses calls; from then on the thread only waits.
    bool alive = cuCtxSetCurrent(context) == CUDA_SUCCESS;
    while (alive) {
        CUdeviceptr address = 0;
        alive = cuMemAlloc(&address, 8000) == CUDA_SUCCESS && cuMemFree(address) == CUDA_SUCCESS;
        ++rounds;
    }
    ::pause();
}

}  // namespace

int main() {
    const CUcontext context = use_device();
    for (int i = 0; i < 4; ++i) {
        std::thread(work, context).detach();
    }
    while (rounds < 400) {
        std::this_thread::yield();
    }
    SAY("main returns\n");
    return 0;
}
