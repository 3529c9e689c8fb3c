// The library that plugin_host loads: linked with libcuda, which the host itself is not. As
// warm_plugin it works while it is being loaded: its constructor waits for a thread of its own that
// allocates, while the loader holds its lock.
#include "program.hpp"

#ifdef MEMLAB_WARM_PLUGIN
#include <pthread.h>

namespace {

void* warm_up(void* /*argument*/) {
    program::use_device();
    program::release(program::allocate(7000));
    return nullptr;
}

[[gnu::constructor]] void begin() {
    pthread_t thread = 0;
    if (pthread_create(&thread, nullptr, warm_up, nullptr) == 0) {
        pthread_join(thread, nullptr);
    }
}

}  // namespace
#endif

extern "C" __attribute__((visibility("default"))) int plugin_work(int live) {
    program::use_device();
    const CUdeviceptr first = program::allocate(40000);
    const CUdeviceptr second = program::allocate(60000);
    program::release(first);
    if (live == 0) {
        program::release(second);
    }
    return live == 0 ? 0 : 1;
}

// An allocation and its free, in a library that is gone soon. The context must be current.
extern "C" __attribute__((visibility("default"))) int plugin_pair() {
    CUdeviceptr address = 0;
    if (cuMemAlloc(&address, 5000) != CUDA_SUCCESS) {
        return 1;
    }
    return cuMemFree(address) == CUDA_SUCCESS ? 0 : 1;
}
