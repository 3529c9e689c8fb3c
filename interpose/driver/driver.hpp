// The real driver's functions, and the map from their addresses to memlab's wrappers.
//
// Built when a hooked name is first resolved or a wrapper first called, from a libcuda that the
// program has loaded itself; memlab never loads one. Immutable once published.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

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
const char* function_name(Api api);

/// Function pointers into the driver; null if this driver lacks the function. If a library
/// preloaded behind memlab wraps the driver, the member points to its wrapper, which the program
/// would call without memlab.
struct Driver {
#define MEMLAB_HOOK(symbol, base, version, per_thread) decltype(&::symbol) symbol = nullptr;
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
#define MEMLAB_USE(symbol) decltype(&::symbol) symbol = nullptr;
#include "interpose/driver/used_functions.inc"
#undef MEMLAB_USE
};

/// What driver() has found; null before.
extern constinit std::atomic<const Driver*> found_driver;
/// Looks for it; null as long as no libcuda is loaded.
const Driver* find_driver();

/// The driver, or null while no libcuda is loaded. Thread-safe and lock-free: it may run inside a
/// dlopen while another thread does the same.
[[gnu::always_inline]] inline const Driver* driver() {
    const Driver* const found = found_driver.load(std::memory_order_acquire);
    return found != nullptr ? found : find_driver();
}

/// From now on, until let_calls_through(), memlab's own calls fail with CUDA_ERROR_NOT_PERMITTED
/// and do not reach the driver, which would block them; those must have returned that are under
/// way. False: there is no memory for that. In a forked child all calls go through. Not
/// thread-safe.
bool keep_calls_from_driver() noexcept;
/// Whether a call of this thread's failed so since this was asked last: one of the program's, which
/// was on its way to the driver, has to be made again.
bool was_kept_from_driver() noexcept;
void let_calls_through() noexcept;

/// memlab's wrapper for a function of the real driver, or `address` itself if there is none.
/// Thread-safe.
void* substitute(void* address);

/// Whether `address` is code of a wrapper library between memlab and the driver. It must get the
/// driver's functions: memlab's wrappers would call back into it.
bool is_downstream_wrapper(const void* address);

/// True when another library behind memlab counts or limits cuMemAlloc, but not cuMemCreate: mapped
/// memory would not be in its books.
bool mapped_memory_passes_wrapper_by();

/// Pins the library that driver() found: its functions are called until the process ends. Takes the
/// loader's lock: call where the program takes it anyway, before something is unloaded.
void keep_driver_loaded();

/// Remembers that a call of the driver returned a sticky error.
void note_error(CUresult error);

/// call_real(), compiled into its caller: for what runs at every launch.
template <class Function, class... Arguments>
[[gnu::always_inline]] inline CUresult call_real_inlined(Function Driver::*function,
                                                         Arguments... arguments) {
    const Driver* real = driver();
    if (real == nullptr) {
        return CUDA_ERROR_NOT_INITIALIZED;
    }
    if (real->*function == nullptr) {
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    const CUresult result = (real->*function)(arguments...);
    if (result != CUDA_SUCCESS) [[unlikely]] {
        note_error(result);
    }
    return result;
}

/// Calls the real function, or returns CUDA_ERROR_NOT_SUPPORTED when the driver lacks it.
template <class Function, class... Arguments>
CUresult call_real(Function Driver::*function, Arguments... arguments) {
    return call_real_inlined(function, arguments...);
}

/// Whether the device has the feature that the attribute tells of; false when the driver does not
/// say.
bool device_has(CUdevice device, CUdevice_attribute attribute);

/// "GPU-xxxxxxxx-xxxx-...", as nvidia-smi prints it; empty on failure.
std::string device_uuid(CUdevice device);

/// "GPU-xxxxxxxx-xxxx-...". May throw std::bad_alloc.
std::string uuid_text(const CUuuid& uuid);

/// "0000:03:00.0"; empty where the driver does not tell. May throw std::bad_alloc.
std::string device_pci_address(CUdevice device);

/// Set once a profiler, or code that memlab does not know, has taken a private table of the driver.
/// While CUPTI 13.0 records memory it crashes in cuMemFreeAsync of memory from cuMemAlloc, whoever
/// calls that (H100, driver 580).
inline constinit std::atomic<bool> profiler_attached{false};

/// What plain CUDA would return for an allocation or free in the current context: the sticky error
/// if the context is broken, CUDA_ERROR_CONTEXT_IS_DESTROYED if another thread destroyed it, else
/// CUDA_SUCCESS. One load until broken_context_possible.
CUresult broken_context();

}  // namespace memlab::interpose
