// The hooked names, sorted at compile time for the dlsym entry's exact match.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace memlab::interpose {

/// For a binary search.
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

/// CUPTI's functions by which a profiler subscribes (hooks/cupti.cpp).
inline constexpr std::array subscribing_names = std::to_array<std::string_view>(
    {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks"});

/// Exact match only: "cuInit" yes, "curl_easy_init" and "cuda" no. A name that cuGetProcAddress
/// knows but that is no symbol of the table is not one of ours.
inline bool is_hooked_name(std::string_view name) {
    return std::binary_search(hooked_names.begin(), hooked_names.end(), name);
}

inline bool is_subscribing_name(std::string_view name) {
    return std::find(subscribing_names.begin(), subscribing_names.end(), name) !=
           subscribing_names.end();
}

/// Functions that free memory, begin or end captures, end contexts and streams, or give memory to
/// other processes: what a pool has to see, in every version that there will ever be. By how their
/// names begin, as later versions and relatives of them do.
inline constexpr std::array what_a_pool_must_see = std::to_array<std::string_view>(
    {"cuMemFree", "cuMemGetHandle", "cuIpcGetMem", "cuStreamBegin", "cuStreamEndCapture",
     "cuStreamDestroy", "cuThreadExchangeStreamCaptureMode", "cuCtxDestroy", "cuCtxDetach",
     "cuDevicePrimaryCtxRe", "cuGreenCtxDestroy", "cuCtxEnablePeerAccess", "cuGraphDestroy",
     "cuGraphExecDestroy"});

inline bool pool_must_see(std::string_view name) {
    return std::any_of(what_a_pool_must_see.begin(), what_a_pool_must_see.end(),
                       [name](std::string_view beginning) { return name.starts_with(beginning); });
}

/// What dlsym answers for one of the subscribing functions, where the real one answered `found`.
void* subscribing_hook(const char* symbol, void* found);

}  // namespace memlab::interpose
