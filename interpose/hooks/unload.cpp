// The exported dlclose: what memlab knows by code address ends with the code.
//
// Unlike dlsym it needs no caller's address, so it is a plain call; it has to come back, because
// only after the real one is the unloading over (the library's destructors may allocate and be
// recorded until then).
#include "interpose/driver/driver.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/process/session.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::interpose {
namespace {

// What memlab found in the process it found without the loader's lock, and so without holding it
// there: the driver, and what the recorder reads.
void keep_what_is_needed() {
    const InsideMemlab inside;
    keep_driver_loaded();
    Session* const session = inside.nested() ? nullptr : Session::current();
    if (session != nullptr && session->recorder() != nullptr) {
        session->recorder()->before_unload();
    }
}

}  // namespace
}  // namespace memlab::interpose

MEMLAB_EXPORT int dlclose(void* handle) {
    const auto real = memlab::interpose::real_dlclose();
    if (real == nullptr) {
        return -1;
    }
    memlab::interpose::keep_what_is_needed();
    const memlab::profiler::unwind::Unloading unloading;
    return real(handle);
}
