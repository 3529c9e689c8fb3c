// The C library's own dlsym and dlopen, beneath the dlsym that memlab exports.
#pragma once

namespace memlab::interpose {

using DlsymFunction = void* (*)(void* handle, const char* name);

/// The real dlsym. Found with dlvsym, so that our own export cannot answer.
DlsymFunction real_dlsym();

/// A handle of the libcuda.so.1 that the program has loaded, or null. Never loads one.
void* loaded_libcuda();

/// True when a global look-up (RTLD_DEFAULT) would find `name` without memlab's export.
bool visible_without_us(const char* name);

}  // namespace memlab::interpose
