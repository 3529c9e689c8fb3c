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

// Always inlined, as one caller is compiled without a sanitizer's instrumentation: dlsym is called
// before the sanitizer is initialized.

/// Exact match only: "cuInit" yes, "curl_easy_init" and "cuda" no. False for names that only
/// cuGetProcAddress knows.
[[gnu::always_inline]] inline bool is_hooked_name(std::string_view name) {
    return std::binary_search(hooked_names.begin(), hooked_names.end(), name);
}

[[gnu::always_inline]] inline bool is_subscribing_name(std::string_view name) {
    return std::find(subscribing_names.begin(), subscribing_names.end(), name) !=
           subscribing_names.end();
}

[[gnu::always_inline]] inline bool is_nvml_name(std::string_view name) {
    return std::find(nvml_names.begin(), nvml_names.end(), name) != nvml_names.end();
}

[[gnu::always_inline]] inline bool is_nccl_name(std::string_view name) {
    return std::find(nccl_names.begin(), nccl_names.end(), name) != nccl_names.end();
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
