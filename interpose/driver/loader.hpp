// The loader's functions that memlab exports (dlsym, dlvsym, dlopen, dlmopen, dlclose), as they are
// without it, and the loader's objects.
//
// They are found in the objects' symbol tables: dlvsym skips a definition without a version,
// which other libraries' are, and memlab's.
#pragma once

#include <atomic>

#include "profiler/object_symbols.hpp"

namespace memlab::interpose {

using DlsymFunction = void* (*)(void* handle, const char* name);

/// The dlsym that would serve the program without memlab: what it calls for the program. Another
/// preloaded library's may answer with functions of its own. Thread-safe, as the next two.
DlsymFunction next_dlsym();

/// The C library's dlsym, for lookups of memlab's own. (Others' may not pass RTLD_NEXT on, or
/// refuse to be asked twice.)
DlsymFunction libc_dlsym();

/// True when another library behind memlab wraps dlsym.
bool dlsym_is_wrapped();

/// True for code of an object that comes before memlab in the loader's order: of the program, and
/// of what is preloaded before memlab. Takes no lock.
bool stands_before_memlab(const void* code);

/// What a global lookup (RTLD_DEFAULT) would find if memlab exported nothing; null if nothing.
void* find_without_memlab(const char* name);

/// The same, looked up once.
template <class Function>
Function* find_once(std::atomic<Function*>& known, const char* name) {
    Function* function = known.load(std::memory_order_acquire);
    if (function == nullptr) {
        function = reinterpret_cast<Function*>(find_without_memlab(name));
        known.store(function, std::memory_order_release);
    }
    return function;
}

/// The next dlclose after memlab's: libc's, or another preloaded library's.
using DlcloseFunction = int (*)(void* handle);
DlcloseFunction real_dlclose();

/// A handle of the loaded libcuda.so.1, or null. Never loads one.
void* loaded_libcuda();

/// The symbols of the loaded libcuda.so.1; empty if there is none. Unlike the other functions it
/// takes no lock that the loader holds while running constructors.
profiler::ObjectSymbols libcuda_symbols();

/// The loaded object that contains this code or data, or null. No handle for dlsym: glibc has a
/// search scope only for objects that were opened with dlopen, not for their dependencies.
void* containing_object(const void* address);

/// The definition of a name that the code of a loaded object, or the libraries it is linked with,
/// have, which need not be globally visible; null if there is none except memlab's, or no object.
void* definition_for(const void* object, const char* name);

/// The NVML or NCCL that the program has loaded, for one of their functions' names; or null. It
/// need not be globally visible, nor be one that the calling code is linked with.
const void* loaded_library_of(const char* name);

/// Call when the program obtains a driver function, or a version of one, unknown to memlab. It may
/// submit work, so the work clock is distrusted from now on. Where its name
/// says that more depends on it (function_purpose.hpp), the report names it and new memory is no
/// longer pooled, in the current session or a later one.
/// Defined in process/unknown_functions.cpp.
void on_unknown_function(const char* name) noexcept;

/// on_unknown_function() if libcuda exports a function of this name.
void note_unknown(const char* name);

/// Call before the program opens a library that bypasses every preload: with RTLD_DEEPBIND or in
/// another namespace. Its calls of the driver will not be seen: from now on nothing is assumed
/// about the work on a device, and new memory is not pooled, as above. Defined in
/// process/unknown_functions.cpp.
void on_unseen_library() noexcept;

/// True when libcuda was loaded at program start (weak_references.cpp).
bool libcuda_loaded_at_start();

/// True when libcuda was loaded at program start and another library of that time precedes it with
/// driver functions of its own (weak_references.cpp).
bool driver_is_wrapped();

/// True when a global lookup reaches libcuda: the program or a library of its start is linked with
/// it, or it was loaded with RTLD_GLOBAL.
bool libcuda_is_global();

/// The result of dlsym(RTLD_NEXT, name) for code at `caller`: the first definition in an object
/// loaded after the caller's, possibly memlab's export. Null, with dlerror set, if there is none.
void* next_definition(const void* caller, const char* name);

}  // namespace memlab::interpose
