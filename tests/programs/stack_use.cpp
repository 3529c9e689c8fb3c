// Tells how many bytes of its stack a thread uses in a call, each in a process of its own. The
// stack is painted before, and looked at after the process has ended: the end of a program counts.
//
// Not in the catalogue: what it prints is not the same with and without memlab.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdint>
#include <cstring>

#include "program.hpp"

using namespace program;

namespace {

constexpr std::size_t stack_bytes = 256 << 10;
constexpr std::uint64_t paint = 0x5ca1ab1e0ddba11;

CUcontext context = nullptr;
CUdeviceptr block = 0;

void begin() {
    CHECK(cuInit(0));
    CHECK(program::create_context(&context));
}

void allocate_first() {
    CHECK(cuMemAlloc(&block, 1000));
}

void fail_to_allocate() {
    CUdeviceptr none = 0;
    if (cuMemAlloc(&none, std::size_t{1} << 60) != CUDA_ERROR_OUT_OF_MEMORY) {
        _exit(6);
    }
}

void free_block() {
    CHECK(cuMemFree(block));
}

void allocate_async() {
    CHECK(cuMemAllocAsync(&block, 1000, nullptr));
    CHECK(cuMemFreeAsync(block, nullptr));
}

void end_context() {
    CHECK(cuCtxDestroy(context));
}

void end() {
    std::exit(0);
}

struct Path {
    const char* name;
    void (*before)();  // what comes first, on a large stack
    void (*run)();
};

constexpr Path paths[] = {
    {"first call", [] {}, begin},
    {"first allocation", begin, allocate_first},
    {"allocation", [] { begin(), allocate_first(); }, allocate_first},
    {"free", [] { begin(), allocate_first(); }, free_block},
    {"stream-ordered", begin, allocate_async},
    {"out of memory", [] { begin(), allocate_first(); }, fail_to_allocate},
    {"end of a context", [] { begin(), allocate_first(); }, end_context},
    {"end of the program", [] { begin(), allocate_first(), fail_to_allocate(); }, end},
};

void run_in_child(const Path& path, void* stack) {
    path.before();
    CUcontext current = nullptr;
    if (context != nullptr) {
        CHECK(cuCtxPopCurrent(&current));
    }
    auto* const words = static_cast<std::uint64_t*>(stack);
    pthread_attr_t attributes;
    pthread_t thread;
    for (std::size_t i = 0; i < stack_bytes / sizeof paint; ++i) {
        words[i] = paint;
    }
    const auto on_stack = [](void* argument) -> void* {
        if (context != nullptr) {
            CHECK(cuCtxSetCurrent(context));
        }
        static_cast<const Path*>(argument)->run();
        return nullptr;
    };
    if (pthread_attr_init(&attributes) != 0 ||
        pthread_attr_setstack(&attributes, stack, stack_bytes) != 0 ||
        pthread_create(&thread, &attributes, on_stack, const_cast<Path*>(&path)) != 0) {
        _exit(4);
    }
    pthread_join(thread, nullptr);
    _exit(0);
}

std::size_t used_of(const void* stack) {
    const auto* const words = static_cast<const std::uint64_t*>(stack);
    std::size_t unused = 0;
    while (unused < stack_bytes / sizeof paint && words[unused] == paint) {
        ++unused;
    }
    return stack_bytes - unused * sizeof paint;
}

}  // namespace

int main() {
    void* const stack =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (stack == MAP_FAILED) {
        return 4;
    }
    for (const Path& path : paths) {
        const pid_t child = fork();
        if (child == 0) {
            run_in_child(path, stack);
        }
        int status = 0;
        if (child < 0 || waitpid(child, &status, 0) != child || status != 0) {
            SAY("%s: status %d\n", path.name, status);
            return 5;
        }
        SAY("%s: %zu\n", path.name, used_of(stack));
    }
    return 0;
}
