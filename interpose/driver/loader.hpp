// The C library's own dlsym and dlopen, beneath the dlsym that memlab exports.
#pragma once

#include "profiler/object_symbols.hpp"

namespace memlab::interpose {

using DlsymFunction = void* (*)(void* handle, const char* name);

/// The real dlsym. Found with dlvsym, so that our own export cannot answer.
DlsymFunction real_dlsym();

/// The next dlclose after ours: libc's, or another preloaded library's.
using DlcloseFunction = int (*)(void* handle);
DlcloseFunction real_dlclose();

/// A handle of the libcuda.so.1 that the program has loaded, or null. Never loads one.
void* loaded_libcuda();

/// The symbols of that libcuda.so.1; none where there is none. Unlike the others it takes no lock
/// that the loader holds while it runs constructors.
profiler::ObjectSymbols libcuda_symbols();

/// What a global look-up (RTLD_DEFAULT) would find without memlab's export; null: nothing.
void* found_without_us(const char* name);

/// The object that holds this code or data, a handle of dlsym's as well; null when none does.
void* object_of(const void* address);

/// The program has the address of a function, or of a version of one, that memlab does not know. It
/// may give work to the device: the work clock is not trusted from now on. If it is one that a pool
/// must see, new memory is not pooled either, in the session that runs or in those to come.
/// Defined in process/unknown_functions.cpp, which knows what follows from that.
void unknown_function(const char* name) noexcept;

/// True when libcuda was loaded together with the program (weak_references.cpp).
bool libcuda_was_there_first();

/// True when another library that was loaded together with the program and libcuda stands before it
/// with functions of the driver's (weak_references.cpp).
bool driver_is_wrapped();

/// True when another preloaded library answers dlsym.
bool dlsym_is_wrapped();

/// True when a global look-up reaches libcuda: the program or something it was started with is
/// linked with it, or somebody has loaded it for all.
bool libcuda_is_global();

/// What dlsym(RTLD_NEXT, name) gives to code at `caller`: the first definition in an object that
/// was loaded after the caller's, memlab's own export where that is one. Null when there is none,
/// and dlerror says so.
void* next_definition(const void* caller, const char* name);

}  // namespace memlab::interpose
