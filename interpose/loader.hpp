// The C library's own dlsym and dlopen, beneath the dlsym that memlab exports.
#pragma once

#include "profiler/object_symbols.hpp"

namespace memlab::interpose {

using DlsymFunction = void* (*)(void* handle, const char* name);

/// The real dlsym. Found with dlvsym, so that our own export cannot answer.
DlsymFunction real_dlsym();

/// A handle of the libcuda.so.1 that the program has loaded, or null. Never loads one.
void* loaded_libcuda();

/// The symbols of that libcuda.so.1; none where there is none. Unlike the others it takes no lock
/// that the loader holds while it runs constructors.
profiler::ObjectSymbols libcuda_symbols();

/// True when a global look-up (RTLD_DEFAULT) would find `name` without memlab's export.
bool visible_without_us(const char* name);

}  // namespace memlab::interpose
