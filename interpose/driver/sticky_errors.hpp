// Sticky errors: after a fault on the device every later call returns them, until the process ends
// or the device is reset. A pool that goes on serving from its cache would hide them.
#pragma once

#include <atomic>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Whether the driver repeats this error on every later call.
constexpr bool is_sticky(CUresult result) {
    switch (static_cast<int>(result)) {
        case CUDA_ERROR_ECC_UNCORRECTABLE:
        case CUDA_ERROR_NVLINK_UNCORRECTABLE:
        case newer_cuda::error_contained:
        case CUDA_ERROR_ILLEGAL_ADDRESS:
        case CUDA_ERROR_LAUNCH_TIMEOUT:
        case CUDA_ERROR_ASSERT:
        case CUDA_ERROR_HARDWARE_STACK_ERROR:
        case CUDA_ERROR_ILLEGAL_INSTRUCTION:
        case CUDA_ERROR_MISALIGNED_ADDRESS:
        case CUDA_ERROR_INVALID_ADDRESS_SPACE:
        case CUDA_ERROR_INVALID_PC:
        case CUDA_ERROR_LAUNCH_FAILED:
        case newer_cuda::error_tensor_memory_leak:
        case CUDA_ERROR_UNKNOWN:
            return true;
        default:
            return false;
    }
}

/// Set by the first sticky error of any driver call (call_real), and once a context was destroyed,
/// which may be current in other threads. Never cleared: from then on broken_context() asks the
/// driver.
inline constinit std::atomic<bool> broken_context_possible{false};

}  // namespace memlab::interpose
