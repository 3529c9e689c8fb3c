// Where programs learn the driver's functions: dlsym and cuGetProcAddress. The real resolver
// answers first; what it returns is looked up by address, so versions, per-thread-stream variants
// and error statuses are the driver's own.
#include "interpose/driver.hpp"
#include "interpose/hook.hpp"
#include "interpose/hooked_names.hpp"
#include "interpose/loader.hpp"
#include "interpose/one_stream.hpp"
#include "interpose/work_clock.hpp"

using memlab::interpose::call_real;
using memlab::interpose::Driver;
using memlab::interpose::substitute;

namespace {

// A function that memlab does not know, or a version of it that no wrapper serves, may give work to
// the device unseen.
void* resolved(const char* symbol, void* function) {
    void* ours = substitute(function);
    const bool counted = ours != function || !memlab::interpose::is_hooked_function(symbol);
    if (function != nullptr && (!counted || !memlab::interpose::is_known_function(symbol))) {
        memlab::interpose::work_goes_unseen();
    }
    return ours;
}

// Whoever resolves functions has just been loaded, or has just loaded somebody.
void look_around() {
    if (memlab::interpose::Session* session = memlab::interpose::Session::current()) {
        session->look_for_ipc_users();
        session->cupti().look_for_others();
    }
}

}  // namespace

// Reached by a jump from the exported dlsym, for hooked names only.
extern "C" __attribute__((visibility("hidden"))) void* memlab_dlsym_hooked(void* handle,
                                                                           const char* name) {
    namespace mi = memlab::interpose;
    look_around();
    void* found = mi::real_dlsym()(handle, name);
    if (found == nullptr) {
        return nullptr;
    }
    // A global look-up (RTLD_DEFAULT, or a handle of the program) finds our own export; it stands
    // for the driver only where there is one.
    if (mi::is_own_export(found)) {
        return mi::visible_without_us(name) ? found : nullptr;
    }
    if (mi::is_seat_name(name)) {
        return mi::seat_hook(name, found);
    }
    return substitute(found);
}

MEMLAB_EXPORT CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                                cuuint64_t flags) {
    look_around();
    const CUresult result = call_real(&Driver::cuGetProcAddress, symbol, function, version, flags);
    if (result == CUDA_SUCCESS && function != nullptr) {
        *function = resolved(symbol, *function);
    }
    return result;
}

MEMLAB_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                   cuuint64_t flags,
                                                   CUdriverProcAddressQueryResult* status) {
    look_around();
    const CUresult result =
        call_real(&Driver::cuGetProcAddress_v2, symbol, function, version, flags, status);
    if (result == CUDA_SUCCESS && function != nullptr) {
        *function = resolved(symbol, *function);
    }
    return result;
}
