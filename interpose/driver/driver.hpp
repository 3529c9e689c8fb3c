// The real driver's functions, and the map from their addresses to our wrappers.
//
// Built the first time that somebody resolves a hooked name or calls a wrapper, from a libcuda that
// the program itself has loaded: memlab never loads one. Immutable once published.
#pragma once

#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/sticky_errors.hpp"

namespace memlab::interpose {

/// One enumerator per hooked function; its value is the line number in the table, from 1.
enum class Api : std::uint16_t {
    none,
#define MEMLAB_HOOK(symbol, base, version, per_thread) symbol,
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
    count
};

/// The exported name: "cuMemAlloc_v2".
const char* name_of(Api api);

/// Null members are functions that this driver lacks. Where a wrapper that was preloaded behind
/// memlab stands before the driver, as it would without memlab, a hooked function's member is the
/// wrapper's.
struct Driver {
#define MEMLAB_HOOK(symbol, base, version, per_thread) decltype(&::symbol) symbol = nullptr;
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
#define MEMLAB_USE(symbol) decltype(&::symbol) symbol = nullptr;
#include "interpose/driver/used_functions.inc"
#undef MEMLAB_USE
};

/// The driver, or null while no libcuda is loaded. Thread-safe, and takes no lock of ours: it may
/// run inside a dlopen on one thread while another thread does the same.
const Driver* driver();

/// Our wrapper for a function address of the real driver, or `address` itself when it is none of
/// ours. Thread-safe.
void* substitute(void* address);

/// Whether code at `address` belongs to a wrapper that stands between memlab and the driver. What
/// it asks for is the driver's: our wrapper would lead back to it.
bool stands_behind_us(const void* address);

/// Keeps the library that driver() found, for good: its functions are called until the process
/// ends. Takes the loader's lock: call where the program takes it, before something is unloaded.
void keep_driver_loaded();

/// Driver addresses that two hooked functions of different types share; they are left alone.
int ambiguous_addresses();

/// Calls the real function, or answers CUDA_ERROR_NOT_SUPPORTED when the driver lacks it.
template <class Function, class... Arguments>
CUresult call_real(Function Driver::*function, Arguments... arguments) {
    const Driver* real = driver();
    if (real == nullptr) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (real->*function == nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = (real->*function)(arguments...);
    if (result != CUDA_SUCCESS && is_sticky(result)) {
        sticky_error_seen.store(true, std::memory_order_relaxed);
    }
    return result;
}

/// What plain CUDA answers to an allocation or a free in the calling thread's context: the sticky
/// error when it is broken, else CUDA_SUCCESS. Costs a load until there was a first such error.
CUresult broken_context();

}  // namespace memlab::interpose
