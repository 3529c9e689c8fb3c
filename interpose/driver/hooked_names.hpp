// The hooked names, sorted at compile time for exact matching in the dlsym entry.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace memlab::interpose {

template <std::size_t count>
consteval std::array<std::string_view, count> sorted_names(
    const std::string_view (&unsorted)[count]) {
    std::array<std::string_view, count> names = std::to_array(unsorted);
    std::sort(names.begin(), names.end());
    return names;
}

inline constexpr auto hooked_names = sorted_names({
#define MEMLAB_HOOK(symbol, base, version, per_thread) #symbol,
#include "interpose/driver/hooked_functions.inc"
#undef MEMLAB_HOOK
});

/// CUPTI's functions with which a profiler subscribes (hooks/cupti.cpp).
inline constexpr std::array subscribing_names = std::to_array<std::string_view>(
    {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks"});

/// Exact match only: "cuInit" yes, "curl_easy_init" and "cuda" no. False for names that only
/// cuGetProcAddress knows.
inline bool is_hooked_name(std::string_view name) {
    return std::binary_search(hooked_names.begin(), hooked_names.end(), name);
}

inline bool is_subscribing_name(std::string_view name) {
    return std::find(subscribing_names.begin(), subscribing_names.end(), name) !=
           subscribing_names.end();
}

/// Name prefixes of functions that free memory, begin or end captures, destroy contexts or streams,
/// or export memory: a pool must intercept them. Prefixes, so that later versions and variants
/// match too.
inline constexpr std::array pool_critical_prefixes = std::to_array<std::string_view>(
    {"cuMemFree", "cuMemGetHandle", "cuIpcGetMem", "cuStreamBegin", "cuStreamEndCapture",
     "cuStreamDestroy", "cuThreadExchangeStreamCaptureMode", "cuCtxDestroy", "cuCtxDetach",
     "cuDevicePrimaryCtxRe", "cuGreenCtxDestroy", "cuCtxEnablePeerAccess", "cuGraphDestroy",
     "cuGraphExecDestroy"});

inline bool is_pool_critical(std::string_view name) {
    return std::any_of(pool_critical_prefixes.begin(), pool_critical_prefixes.end(),
                       [name](std::string_view prefix) { return name.starts_with(prefix); });
}

/// The result of dlsym for one of subscribing_names, for which the real dlsym returned `found`.
void* subscribing_hook(const char* symbol, void* found);

}  // namespace memlab::interpose
