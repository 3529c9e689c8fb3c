// A program of the runtime API whose forked children use it: with a static or a shared runtime,
// which asks the driver in its own way. Each child makes one call, so that no other call is what is
// seen.
//
// Recorded: one report, the parent's: 2 allocations, 1 free, and that three processes tried.
#include <cuda_runtime_api.h>
#include <sys/wait.h>

#include "program.hpp"

int main() {
    void* first = nullptr;
    void* second = nullptr;
    SAY("parent: cudaMalloc %d\n", static_cast<int>(cudaMalloc(&first, 700000)));
    for (int i = 0; i < 3; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
            void* memory = nullptr;
            std::size_t total = 0;
            std::size_t available = 0;
            const cudaError_t error = i == 0   ? cudaMalloc(&memory, 1000)
                                      : i == 1 ? cudaSetDevice(0)
                                               : cudaMemGetInfo(&available, &total);
            SAY("child: %d, %s\n", static_cast<int>(error), cudaGetErrorString(error));
            ::_exit(0);
        }
        int status = 0;
        ::waitpid(child, &status, 0);
        SAY("child ended with %d\n", status);
    }
    SAY("parent: cudaMalloc %d\n", static_cast<int>(cudaMalloc(&second, 700000)));
    SAY("parent: cudaFree %d\n", static_cast<int>(cudaFree(first)));
    return 0;
}
