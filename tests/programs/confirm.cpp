// Allocates and frees without end on three threads, and keeps count in a file that others can read:
// each call is counted when it has returned. Prints "ready" once; to be killed at any moment.
//
//   confirm COUNTS    the file has two numbers of 8 bytes then: allocations, frees
//
// Recorded: at least what was counted, and at most one call a thread more.
#include <fcntl.h>
#include <sys/mman.h>

#include <atomic>
#include <cstdint>
#include <random>
#include <thread>
#include <vector>

#include "program.hpp"

using namespace program;

namespace {

struct Counts {
    std::atomic<std::uint64_t> allocations;
    std::atomic<std::uint64_t> frees;
};

void work(CUcontext context, unsigned seed, Counts* counts) {
    CHECK(cuCtxSetCurrent(context));
    std::mt19937 random(seed);
    std::vector<CUdeviceptr> blocks;
    for (;;) {
        if (blocks.size() < 50 && random() % 2 == 0) {
            blocks.push_back(allocate(1 + random() % (random() % 16 == 0 ? 4000000 : 40000)));
            counts->allocations.fetch_add(1);
        } else if (!blocks.empty()) {
            std::swap(blocks[random() % blocks.size()], blocks.back());
            release(blocks.back());
            counts->frees.fetch_add(1);
            blocks.pop_back();
        }
    }
}

}  // namespace

int main(int argc, char** argv) {
    const int file = argc == 2 ? ::open(argv[1], O_RDWR | O_CREAT, 0600) : -1;
    if (file < 0 || ::ftruncate(file, sizeof(Counts)) != 0) {
        ::dprintf(STDERR_FILENO, "usage: %s COUNTS\n", argv[0]);
        return 2;
    }
    void* const memory =
        ::mmap(nullptr, sizeof(Counts), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) {
        return 2;
    }
    auto* const counts = static_cast<Counts*>(memory);
    const CUcontext context = use_device();
    std::thread first(work, context, 1, counts);
    std::thread second(work, context, 2, counts);
    SAY("ready\n");
    work(context, 3, counts);
}
