// An allocation served by the driver, kept within the device's limit.
#pragma once

#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/live_allocations.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

class Memory;

/// Description of a driver-served allocation for the recording.
struct DriverAllocation {
    HandleClass handles = HandleClass::memory;
    trace::MemoryKind kind = trace::MemoryKind::device;
    std::uint64_t requested = 0;
    CUstream stream = nullptr;
    CUdevice device = -1;         ///< owner of the memory; -1: the current context's device
    CUmemoryPool pool = nullptr;  ///< stream-ordered only; null: the device's current pool
    bool estimated = false;       ///< the driver may take more than `requested`
};

/// The bytes of the allocation that are certain to come from the device. One of the driver's pools
/// may serve the rest from what it holds.
std::uint64_t least_from_device(const DriverAllocation& allocation);

/// What plain CUDA returns, during a capture, for a call that it treats as unsafe; invalidates the
/// capture if plain CUDA would.
CUresult probe_driver_in_capture();

/// Runs `real`, or returns CUDA_ERROR_OUT_OF_MEMORY if that would exceed the limit. `address` reads
/// its result. If a capture forbids the call, the driver's error for that is returned.
CUresult allocate_within_limit(Memory& memory, const DriverAllocation& allocation,
                               FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address);

}  // namespace memlab::interpose
