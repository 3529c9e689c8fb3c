// A library allocates segments for a cache of its own, exports each to other processes, and frees
// them all: framework_cache LIBRARY, a build of freeing_library.cpp under some name.
#include <cuda.h>

#include <cstdint>

#include "simulated.hpp"

using namespace program;

int main(int argc, char** argv) {
    void* library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : nullptr;
    if (library == nullptr) {
        return 2;
    }
    auto* const take =
        reinterpret_cast<CUresult (*)(CUdeviceptr*, std::size_t)>(dlsym(library, "take_memory"));
    auto* const give =
        reinterpret_cast<CUresult (*)(CUdeviceptr)>(dlsym(library, "free_device_memory"));
    use_device();
    auto* const used = control<std::uint64_t()>("simcuda_used");
    const std::uint64_t before = used();
    CUdeviceptr segments[4] = {};
    int exported = 0;
    for (CUdeviceptr& segment : segments) {
        CHECK(take(&segment, std::size_t{2} << 20));
        CUipcMemHandle handle;
        exported += cuIpcGetMemHandle(&handle, segment) == CUDA_SUCCESS ? 1 : 0;
    }
    SAY("exported: %d of 4\n", exported);
    for (const CUdeviceptr segment : segments) {
        CHECK(give(segment));
    }
    SAY("the driver has it back: %s\n", used() == before ? "yes" : "no");
    return 0;
}
