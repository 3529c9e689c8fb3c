// Symbol resolution: dlsym and cuGetProcAddress. The real resolver runs first; its result is
// substituted by address, so versions, per-thread-stream variants and error statuses are the
// driver's own.
//
// Other libraries may wrap the driver or dlsym, too, in the order of LD_PRELOAD: a wrapper in front
// of memlab calls memlab (dlvsym, by which it looks for the C library's dlsym, gives it memlab's);
// one behind it is called by memlab wherever the program would call it, and its own lookups get the
// driver's functions.
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

// Returns memlab's wrapper for a resolved function. A function without a wrapper, unless known to
// be harmless, may submit work unseen.
void* resolve(const char* symbol, void* function, const void* caller) {
    if (memlab::interpose::is_downstream_wrapper(caller)) {
        return function;
    }
    void* ours = substitute(function);
    // A wrapper in front of memlab calls memlab.
    const bool counted = ours != function || memlab::interpose::is_own_export(function) ||
                         !memlab::interpose::is_hooked_function(symbol) ||
                         memlab::interpose::stands_before_memlab(function);
    if (function != nullptr && (!counted || !memlab::interpose::is_known_function(symbol))) {
        memlab::interpose::on_unknown_function(symbol);
    }
    return ours;
}

// A resolution usually means that a library has just been loaded.
void detect_new_libraries() {
    if (memlab::interpose::Session* session = memlab::interpose::Session::current()) {
        session->detect_ipc_users();
        session->cupti().detect_other_profilers();
    }
}

}  // namespace

namespace memlab::interpose {

namespace {

/// What dlsym returns to the program, given the loader's result.
void* choose_result(void* found, const char* name, const void* caller) {
    // A global lookup (RTLD_DEFAULT, or a handle of the program) finds memlab's export. It is
    // returned only if there is a real function behind it.
    if (is_own_export(found)) {
        const bool has_target = is_subscribing_name(name) || is_nvml_name(name) ||
                                is_nccl_name(name) || driver() != nullptr;
        void* const next = find_without_memlab(name);  // last, so that dlerror reports it
        return next != nullptr && has_target ? found : next;
    }
    if (is_downstream_wrapper(caller)) {
        return found;
    }
    if (is_nvml_name(name)) {
        return nvml_hook(name, found);
    }
    if (is_nccl_name(name)) {
        return nccl_hook(name, found);
    }
    return is_subscribing_name(name) ? subscribing_hook(name, found) : substitute(found);
}

}  // namespace

// Jump target of the exported dlsym (dlfcn_stubs.S), for hooked names only. `caller` is a return
// address.
extern "C" __attribute__((visibility("hidden"))) void* memlab_dlsym_hooked(void* handle,
                                                                           const char* name,
                                                                           const void* caller) {
    detect_new_libraries();
    void* found = handle == RTLD_NEXT ? next_definition(caller, name) : next_dlsym()(handle, name);
    if (found != nullptr) {
        found = choose_result(found, name, caller);
    }
    if (found != nullptr) {
        dlerror();  // discard errors of memlab's own lookups
    }
    return found;
}

}  // namespace memlab::interpose

MEMLAB_EXPORT CUresult CUDAAPI cuGetProcAddress(const char* symbol, void** function, int version,
                                                cuuint64_t flags) {
    detect_new_libraries();
    const CUresult result = memlab::interpose::unless_shut<false>(
        [&] { return call_real(&Driver::cuGetProcAddress, symbol, function, version, flags); });
    if (result == CUDA_SUCCESS && function != nullptr) {
        *function = resolve(symbol, *function, __builtin_return_address(0));
    }
    return result;
}

MEMLAB_EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                   cuuint64_t flags,
                                                   CUdriverProcAddressQueryResult* status) {
    detect_new_libraries();
    const CUresult result = memlab::interpose::unless_shut<false>([&] {
        return call_real(&Driver::cuGetProcAddress_v2, symbol, function, version, flags, status);
    });
    if (result == CUDA_SUCCESS && function != nullptr) {
        *function = resolve(symbol, *function, __builtin_return_address(0));
    }
    return result;
}

MEMLAB_EXPORT CUresult CUDAAPI cuGetExportTable(const void** table, const CUuuid* id) {
    const CUresult result = memlab::interpose::unless_shut<false>(
        [&] { return call_real(&Driver::cuGetExportTable, table, id); });
    if (result == CUDA_SUCCESS) {
        memlab::interpose::on_private_table(*id, __builtin_return_address(0));
    }
    return result;
}
