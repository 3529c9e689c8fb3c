// What the process that steps aside and its helper say to each other, over a socket that keeps
// messages apart: the functions of the driver by which one process checkpoints another, and the
// memory of a GPU by NVML.
//
// The helper does what it is told and answers; the state is the driver's, in the process that is
// checkpointed. So a helper may be lost at any moment, and another one goes on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::interpose {

enum class HelperVerb : std::uint32_t {
    begin,  ///< load the driver of this path, and NVML
    state,
    lock,  ///< within timeout_ms
    checkpoint,
    restore,
    unlock,
    memory,  ///< of the GPU with this UUID
};

struct HelperRequest {
    HelperVerb verb = HelperVerb::begin;
    std::int32_t process = 0;
    std::uint32_t timeout_ms = 0;
    char text[4096] = "";
};

struct HelperReply {
    HelperVerb verb = HelperVerb::begin;  ///< what is answered
    std::int32_t result = 0;              ///< CUresult, or nvmlReturn_t of `memory`
    std::int32_t state = 0;               ///< CUprocessState
    std::int32_t process = 0;             ///< the helper's id
    std::uint64_t free_bytes = 0;
    std::uint64_t total_bytes = 0;
};

/// Results that are neither CUDA's nor NVML's.
inline constexpr std::int32_t helper_has_no_function = -1;  ///< the driver lacks it
inline constexpr std::int32_t helper_has_no_library = -2;

/// CUprocessState, which <cuda.h> has from 12.8 on.
enum class ProcessState : std::int32_t { running, locked, checkpointed, failed };

}  // namespace memlab::interpose
