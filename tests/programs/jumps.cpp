// longjmp and C++ exceptions out of functions that have allocated, 100 times each.
//
// Recorded: 200 device allocations of 5000 bytes, 200 frees.
#include <csetjmp>
#include <stdexcept>

#include "program.hpp"

using namespace program;

namespace {

std::jmp_buf target;
CUdeviceptr escaped;

[[noreturn, gnu::noinline]] void allocate_and_jump() {
    escaped = allocate(5000);
    std::longjmp(target, 1);
}

[[noreturn, gnu::noinline]] void allocate_and_throw() {
    escaped = allocate(5000);
    throw std::runtime_error("caught by main");
}

}  // namespace

int main() {
    use_device();
    static int jumps = 0;
    static int catches = 0;
    for (static int i = 0; i < 100; ++i) {
        if (setjmp(target) == 0) {
            allocate_and_jump();
        }
        ++jumps;
        release(escaped);
    }
    for (int i = 0; i < 100; ++i) {
        try {
            allocate_and_throw();
        } catch (const std::runtime_error&) {
            ++catches;
        }
        release(escaped);
    }
    SAY("%d jumps, %d exceptions\n", jumps, catches);
    return 0;
}
