// The hooked names, sorted at compile time for the dlsym entry's exact match.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

namespace memlab::interpose {

inline constexpr auto hooked_names = [] {
    std::array names = std::to_array<std::string_view>({
#define MEMLAB_HOOK(symbol, base, version, per_thread) #symbol,
#include "interpose/hooked_functions.inc"
#undef MEMLAB_HOOK
    });
    std::sort(names.begin(), names.end());
    return names;
}();

/// CUPTI's functions by which a profiler takes the seat (hooks_cupti.cpp).
inline constexpr std::array seat_names = std::to_array<std::string_view>(
    {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks"});

/// Exact match only: "cuInit" yes, "curl_easy_init" and "cuda" no. A name that cuGetProcAddress
/// knows but that is no symbol of the table is not one of ours.
inline bool is_hooked_name(std::string_view name) {
    return std::binary_search(hooked_names.begin(), hooked_names.end(), name);
}

inline bool is_seat_name(std::string_view name) {
    return std::find(seat_names.begin(), seat_names.end(), name) != seat_names.end();
}

/// What dlsym answers for one of the seat's names, where the real one answered `found`.
void* seat_hook(const char* symbol, void* found);

}  // namespace memlab::interpose
