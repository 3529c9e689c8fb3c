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

/// CUPTI's functions with which a profiler begins (hooks/cupti.cpp): it subscribes, or sets up
/// activities, some of which programs do first.
inline constexpr std::array subscribing_names = std::to_array<std::string_view>(
    {"cuptiSubscribe", "cuptiSubscribe_v2", "cuptiActivityRegisterCallbacks", "cuptiActivityEnable",
     "cuptiActivityEnableContext", "cuptiActivitySetAttribute", "cuptiActivitySetAttribute_v2"});

/// NVML's functions whose answers tell of memory that is free or used (hooks/nvml.cpp).
inline constexpr std::array nvml_names = std::to_array<std::string_view>(
    {"nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2",
     "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2",
     "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses",
     "nvmlDeviceGetGraphicsRunningProcesses_v2", "nvmlDeviceGetGraphicsRunningProcesses_v3"});

/// NCCL's functions that use or end a communicator (hooks/nccl.cpp).
inline constexpr std::array nccl_names = std::to_array<std::string_view>(
    {"ncclAllReduce", "ncclReduce", "ncclBcast", "ncclBroadcast", "ncclReduceScatter",
     "ncclAllGather", "ncclSend", "ncclRecv", "ncclGroupStart", "ncclGroupEnd", "ncclCommFinalize",
     "ncclCommDestroy", "ncclCommAbort"});

// Always inlined, and without a call: one caller is compiled without a sanitizer's instrumentation,
// since dlsym is called before the sanitizer is initialized, and what it called would have it.

/// The names as C strings, of which nothing but the pointers is read.
template <const auto& names>
inline constexpr auto c_strings = [] {
    std::array<const char*, names.size()> result{};
    std::transform(names.begin(), names.end(), result.begin(),
                   [](std::string_view name) { return name.data(); });
    return result;
}();

/// As strcmp.
[[gnu::always_inline]] inline int compare_names(const char* one, const char* other) {
    for (; *one == *other && *one != '\0'; ++one, ++other) {
    }
    return static_cast<unsigned char>(*one) - static_cast<unsigned char>(*other);
}

template <const auto& names>
[[gnu::always_inline]] inline bool is_one_of(const char* name) {
    constexpr const char* const* all = c_strings<names>.data();
    constexpr std::size_t count = names.size();
    for (std::size_t i = 0; i < count; ++i) {
        if (compare_names(name, all[i]) == 0) {
            return true;
        }
    }
    return false;
}

/// Exact match only: "cuInit" yes, "curl_easy_init" and "cuda" no. False for names that only
/// cuGetProcAddress knows.
[[gnu::always_inline]] inline bool is_hooked_name(const char* name) {
    constexpr const char* const* all = c_strings<hooked_names>.data();
    constexpr std::size_t count = hooked_names.size();
    std::size_t begin = 0;
    for (std::size_t end = count; begin != end;) {
        const std::size_t middle = begin + (end - begin) / 2;
        const int order = compare_names(name, all[middle]);
        if (order == 0) {
            return true;
        }
        (order < 0 ? end : begin) = order < 0 ? middle : middle + 1;
    }
    return false;
}

[[gnu::always_inline]] inline bool is_subscribing_name(const char* name) {
    return is_one_of<subscribing_names>(name);
}

[[gnu::always_inline]] inline bool is_nvml_name(const char* name) {
    return is_one_of<nvml_names>(name);
}

[[gnu::always_inline]] inline bool is_nccl_name(const char* name) {
    return is_one_of<nccl_names>(name);
}

/// Whether memlab exports a function of this name in front of a library's.
[[gnu::always_inline]] inline bool is_interposed_name(const char* name) {
    if (name[0] == 'c' && name[1] == 'u') {
        return is_hooked_name(name) || is_subscribing_name(name);
    }
    if (name[0] != 'n') {
        return false;
    }
    return name[1] == 'v' ? is_nvml_name(name) : name[1] == 'c' && is_nccl_name(name);
}

/// The result of dlsym for one of subscribing_names, for which the real dlsym returned `found`.
void* subscribing_hook(const char* symbol, void* found);

/// The same for one of nvml_names, and of nccl_names.
void* nvml_hook(const char* symbol, void* found);
void* nccl_hook(const char* symbol, void* found);

}  // namespace memlab::interpose
