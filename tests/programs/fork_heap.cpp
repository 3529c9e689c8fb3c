// A child of fork that uses CUDA while the heap cannot be used: whatever thread of the parent held
// its lock at the fork holds it in the child forever. This program's own malloc says so with
// code 8.
//
// Recorded: the parent's report, 1 allocation and 1 free, and that one process tried.
#include <sys/wait.h>

#include "program.hpp"

using namespace program;

extern "C" void* __libc_malloc(std::size_t size);

namespace {

bool heap_is_locked = false;

}  // namespace

extern "C" void* malloc(std::size_t size) {
    if (heap_is_locked) {
        ::dprintf(STDERR_FILENO, "malloc in the child\n");
        ::_exit(8);
    }
    return __libc_malloc(size);
}

int main() {
    use_device();
    const CUdeviceptr block = allocate(700000);
    const pid_t child = ::fork();
    if (child == 0) {
        heap_is_locked = true;
        CUdeviceptr address = 0;
        int count = 0;
        const bool refused = cuMemAlloc(&address, 1000) != CUDA_SUCCESS &&
                             cuDeviceGetCount(&count) != CUDA_SUCCESS &&
                             cuMemFree(block) != CUDA_SUCCESS;
        ::_exit(refused ? 5 : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    release(block);
    SAY("the child ended with %d\n", WIFEXITED(status) ? WEXITSTATUS(status) : -1);
    return 0;
}
