// Allocates and frees without end on three threads, until it is killed. Prints "ready" once.
//
// Recorded: whatever happened until then, without a contradiction.
#include <random>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

void work(CUcontext context, unsigned seed) {
    CHECK(cuCtxSetCurrent(context));
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> blocks;
    for (;;) {
        if (blocks.size() < 50 && random() % 2 == 0) {
            blocks.push_back(allocate(1 + random() % (random() % 4 == 0 ? 4000000 : 40000)));
        } else if (!blocks.empty()) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            release(blocks.back());
            blocks.pop_back();
        }
    }
}

}  // namespace

int main() {
    const CUcontext context = use_device();
    std::thread first(work, context, 1);
    std::thread second(work, context, 2);
    SAY("ready\n");
    work(context, 3);
}
