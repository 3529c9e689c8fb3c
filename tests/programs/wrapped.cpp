// A program linked with libcuda whose calls a preloaded wrapper (driver_wrapper.cpp) counts, and
// what look-ups of several kinds find beside one.
//
// Recorded: 3 device allocations of 40,000 bytes in all, 3 frees.
#include <dlfcn.h>

#include <initializer_list>

#include "program.hpp"

using namespace program;

int main() {
    const auto counts = reinterpret_cast<void (*)(int*)>(::dlsym(RTLD_DEFAULT, "wrapper_counts"));
    if (counts == nullptr) {
        SAY("no wrapper\n");
        return 4;
    }
    use_device();
    const CUdeviceptr blocks[] = {allocate(10000), allocate(10000), allocate(20000)};
    unsigned char byte = 7;
    for (const CUdeviceptr block : blocks) {
        CHECK(cuMemcpyHtoD(block, &byte, 1));
        release(block);
    }
    int seen[4] = {};
    counts(seen);
    SAY("the wrapper saw %d starts, %d allocations, %d frees\n", seen[0], seen[1], seen[2]);
    SAY("it was given itself %d times\n", seen[3]);
    for (const char* name : {"cuMemAlloc_v2", "cuMemGetInfo_v2", "cuNoSuchFunction"}) {
        for (void* const handle : {RTLD_DEFAULT, RTLD_NEXT}) {
            (void)::dlerror();
            const bool found = ::dlsym(handle, name) != nullptr;
            SAY("%s %s: %s, %s\n", handle == RTLD_NEXT ? "next" : "default", name,
                found ? "found" : "null", ::dlerror() == nullptr ? "no error" : "an error");
        }
    }
    return 0;
}
