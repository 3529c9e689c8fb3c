// The exported dlclose: what memlab knows by code address ends with the code.
//
// Unlike dlsym it needs no caller's address, so it is a plain call; it has to come back, because
// only after the real one is the unloading over (the library's destructors may allocate and be
// recorded until then).
#include "interpose/hook.hpp"
#include "interpose/loader.hpp"
#include "profiler/unwind/unloads.hpp"

MEMLAB_EXPORT int dlclose(void* handle) {
    const auto real = memlab::interpose::real_dlclose();
    if (real == nullptr) {
        return -1;
    }
    const memlab::profiler::unwind::Unloading unloading;
    return real(handle);
}
