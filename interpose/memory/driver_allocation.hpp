// One allocation that the driver serves, and keeping it within the device's limit.
#pragma once

#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/live_allocations.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

class Memory;

/// An allocation that the driver serves, as the recording knows it.
struct DriverAllocation {
    HandleClass handles = HandleClass::memory;
    trace::MemoryKind kind = trace::MemoryKind::device;
    std::uint64_t requested = 0;
    CUstream stream = nullptr;
    CUdevice device = -1;         ///< whose memory it is; -1: the current context's device
    CUmemoryPool pool = nullptr;  ///< of stream-ordered memory; null: the device's current one
    bool estimated = false;       ///< the driver may take more than `requested`
};

/// What plain CUDA answers, while a capture is under way, to a call that it treats as unsafe; the
/// capture ends where that would have ended it.
CUresult ask_driver_in_capture();

/// Runs `real`, or answers CUDA_ERROR_OUT_OF_MEMORY where its memory is past the limit. `address`
/// reads its result. A call that a capture forbids gets the driver's answer to that.
CUresult allocate_within_limit(Memory& memory, const DriverAllocation& allocation,
                               FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address);

}  // namespace memlab::interpose
