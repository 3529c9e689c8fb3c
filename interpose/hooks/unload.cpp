// The exported dlclose: invalidates memlab's caches that are keyed by code address.
//
// A plain wrapper, since unlike dlsym it does not depend on its caller's address. It must regain
// control after the real call, because only then is the unloading over (the library's destructors
// may allocate and be recorded until then).
#include "interpose/driver/driver.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/process/session.hpp"
#include "profiler/unwind/unloads.hpp"

namespace memlab::interpose {
namespace {

// Pins libraries that memlab found without the loader's lock, and so without a reference: the
// driver, and those that the recorder reads.
void pin_needed_libraries() {
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
    memlab::interpose::pin_needed_libraries();
    const memlab::profiler::unwind::Unloading unloading;
    return real(handle);
}
