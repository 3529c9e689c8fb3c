// Does everything on threads with stacks of 56 KiB, as fibers and audio threads have: the first
// call of CUDA, allocations from many places, one that fails, the end of a context; with "exit",
// the end of the program as well.
//
// Recorded: 65 device allocations of 1,000 to 30,000,000 bytes, 33 frees; one out of memory.
#include <pthread.h>

#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t stack_bytes = 56 << 10;
constexpr int places = 32;

CUcontext context = nullptr;

// A call stack of its own for each place.
template <int place>
[[gnu::noinline]] void allocate_from(CUdeviceptr* blocks) {
    blocks[place] = allocate(std::size_t{1000} * (place + 1));
    if constexpr (place + 1 < places) {
        allocate_from<place + 1>(blocks);
    }
    __asm__ volatile("");  // not a jump: the frame stays
}

void* begin(void*) {
    CHECK(cuInit(0));
    CHECK(program::create_context(&context));
    CUdeviceptr kept[places] = {};
    allocate_from<0>(kept);
    CUdeviceptr blocks[places] = {};
    allocate_from<0>(blocks);
    for (const CUdeviceptr block : blocks) {
        release(block);
    }
    release(allocate(30000000));
    CUdeviceptr none = 0;
    SAY("too much: %d\n", static_cast<int>(cuMemAlloc(&none, std::size_t{1} << 60)));
    CUcontext popped = nullptr;
    CHECK(cuCtxPopCurrent(&popped));
    return nullptr;
}

void* finish(void*) {
    SAY("destroyed: %d\n", static_cast<int>(cuCtxDestroy(context)));
    return nullptr;
}

void* end(void*) {
    std::exit(5);
}

void on_small_stack(void* (*function)(void*)) {
    pthread_attr_t attributes;
    pthread_t thread;
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstacksize(&attributes, stack_bytes) != 0 ||
        pthread_create(&thread, &attributes, function, nullptr) != 0 ||
        pthread_join(thread, nullptr) != 0) {
        _exit(4);
    }
}

}  // namespace

int main(int argc, char** argv) {
    on_small_stack(begin);
    on_small_stack(finish);
    if (argc == 2 && std::strcmp(argv[1], "exit") == 0) {
        on_small_stack(end);
    }
    return 0;
}
