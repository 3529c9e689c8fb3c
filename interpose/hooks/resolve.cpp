// Where programs learn the driver's functions: dlsym and cuGetProcAddress. The real resolver
// answers first; what it returns is looked up by address, so versions, per-thread-stream variants
// and error statuses are the driver's own.
//
// Other libraries may wrap the driver, too. They stand in the order of LD_PRELOAD: a wrapper in
// front of memlab calls memlab, one behind it is called by memlab where the program would call it,
// and what it asks for itself is the driver's.
#include <dlfcn.h>

#include "interpose/driver/driver.hpp"
#include "interpose/driver/hooked_names.hpp"
#include "interpose/driver/loader.hpp"
#include "interpose/driver/work_clock.hpp"
#include "interpose/hooks/hook.hpp"
#include "interpose/process/unknown_functions.hpp"

using memlab::interpose::call_real;
using memlab::interpose::Driver;
using memlab::interpose::substitute;

namespace {

// A function that memlab does not know, or a version of it that no wrapper serves, may do anything
// unseen.
void* resolved(const char* symbol, void* function, const void* caller) {
    if (memlab::interpose::stands_behind_us(caller)) {
        return function;
    }
    void* ours = substitute(function);
    const bool counted = ours != function || memlab::interpose::is_own_export(function) ||
                         !memlab::interpose::is_hooked_function(symbol);
    if (function != nullptr && (!counted || !memlab::interpose::is_known_function(symbol))) {
        memlab::interpose::unknown_function(symbol);
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

namespace memlab::interpose {

namespace {

/// The program's answer for what the loader found.
void* answer_for(void* found, const char* name, const void* caller) {
    // A global look-up (RTLD_DEFAULT, or a handle of the program) finds our own export; it stands
    // for the driver only where there is one.
    if (is_own_export(found)) {
        const bool stands_for_it = is_subscribing_name(name) || driver() != nullptr;
        void* const behind_us = found_without_us(name);  // last: dlerror then tells of it
        return behind_us != nullptr && stands_for_it ? found : behind_us;
    }
    if (stands_behind_us(caller)) {
        return found;
    }
    return is_subscribing_name(name) ? subscribing_hook(name, found) : substitute(found);
}

}  // namespace

// Reached by a jump from the exported dlsym, for hooked names only. `caller` is a return address.
extern "C" __attribute__((visibility("hidden"))) void* memlab_dlsym_hooked(void* handle,
                                                                           const char* name,
                                                                           const void* caller) {
    look_around();
    void* found = handle == RTLD_NEXT ? next_definition(caller, name) : real_dlsym()(handle, name);
    if (found != nullptr) {
        found = answer_for(found, name, caller);
    }
    if (found != nullptr) {
        dlerror();  // what else was looked for is nobody's concern
    }
    return found;
}

}  // namespace memlab::interpose

MEMLAB_EXPORT CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                                cuuint64_t flags) {
    look_around();
    const CUresult result = call_real(&Driver::cuGetProcAddress, symbol, function, version, flags);
    if (result == CUDA_SUCCESS && function != nullptr) {
        *function = resolved(symbol, *function, __builtin_return_address(0));
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
        *function = resolved(symbol, *function, __builtin_return_address(0));
    }
    return result;
}

MEMLAB_EXPORT CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
    const CUresult result = call_real(&Driver::cuGetExportTable, table, id);
    if (result == CUDA_SUCCESS) {
        memlab::interpose::private_table(*id, __builtin_return_address(0));
    }
    return result;
}
