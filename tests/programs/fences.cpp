// A free while the GPU is still at work, and what is made of the memory then. Runs on the simulated
// driver only: there time stands still until the program moves it, and two accesses to one address
// by different owners that nothing orders end the process with code 86.
//
//   fences reuse BYTES    a kernel on one stream writes p for a millisecond; p is freed; memory of
//                         the same size is allocated and written on another stream
//   fences idle BYTES     the same with nothing running
//   fences misuse BYTES   as reuse, but p itself is written again after its free: the control,
//                         which the simulated driver must catch where the free did not wait
//
// A third argument names a library (tests/programs/freeing_library.cpp) that makes the free.
//
// Prints whether the free waited on the host and whether the same address came back.
#include <cuda.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstring>

#include "tests/programs/simulated.hpp"

namespace {

constexpr std::uint64_t millisecond = 1'000'000;

// Frees through a library, so that the library is the caller.
void release_through(const char* path, CUdeviceptr address) {
    void* library = dlopen(path, RTLD_NOW);
    auto* function =
        library == nullptr
            ? nullptr
            : reinterpret_cast<CUresult (*)(CUdeviceptr)>(dlsym(library, "free_device_memory"));
    if (function == nullptr) {
        SAY("cannot load %s\n", path);
        _exit(3);
    }
    CHECK(function(address));
}

}  // namespace

int main(int argc, char** argv) {
    if (argc != 3 && argc != 4) {
        return 2;
    }
    const bool busy = std::strcmp(argv[1], "idle") != 0;
    const bool misuse = std::strcmp(argv[1], "misuse") == 0;
    const std::size_t bytes = std::strtoull(argv[2], nullptr, 10);
    program::use_device();
    auto* now = program::control<std::uint64_t(void)>("simcuda_now");
    auto* kernel = program::control<int(void*, std::uint64_t, const simcuda_access*, std::size_t)>(
        "simcuda_kernel");
    auto* owner =
        program::control<void(std::uint64_t, std::uint64_t, std::uint64_t)>("simcuda_owner");
    auto* calls = program::control<std::uint64_t(const char*)>("simcuda_calls");

    CUstream first = nullptr;
    CUstream second = nullptr;
    CHECK(cuStreamCreate(&first, CU_STREAM_NON_BLOCKING));
    CHECK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));

    const CUdeviceptr p = program::allocate(bytes);
    owner(p, bytes, 1);
    const simcuda_access first_write = {p, bytes, 1, 1};
    kernel(first, busy ? millisecond : 0, &first_write, 1);

    const std::uint64_t before = now();
    if (argc == 4) {
        release_through(argv[3], p);
    } else {
        program::release(p);
    }
    SAY("free: the host %s\n", now() - before >= millisecond ? "waited" : "went on");

    const CUdeviceptr q = misuse ? p : program::allocate(bytes);
    SAY("same address: %s\n", q == p ? "yes" : "no");
    owner(q, bytes, 2);
    const simcuda_access second_write = {q, bytes, 1, 2};
    kernel(second, 0, &second_write, 1);
    CHECK(cuCtxSynchronize());
    SAY("context events recorded: %s, waited for on the device: %s\n",
        calls("cuCtxRecordEvent") != 0 ? "yes" : "no", calls("cuCtxWaitEvent") != 0 ? "yes" : "no");
    if (!misuse) {
        program::release(q);
    }
    return 0;
}
