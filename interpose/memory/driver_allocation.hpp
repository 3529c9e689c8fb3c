// An allocation served by the driver, kept within the device's limit, and what makes room for one.
#pragma once

#include <cstdint>
#include <optional>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/memory/live_allocations.hpp"
#include "interpose/memory/memory.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

class Context;

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

/// An allocation of the driver's.
struct DriverRange {
    std::uint64_t begin = 0;
    std::uint64_t bytes = 0;  ///< 0: none holds the address
    std::optional<LiveAllocation> live;
};
/// The one that holds the address: by the driver, or by memlab where calls are kept from that.
DriverRange find_driver_range(Memory& memory, std::uint64_t address);

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

/// MEMLAB_FILL=0xBYTE: fills what the driver has just allocated at `address`, in the program's
/// current context (`context`; may be null). Waits; but stream-ordered memory, which may have an
/// earlier user in its stream, is filled in that stream, and not in a default stream while another
/// stream captures: that would end the capture. Managed memory is left alone, since it would move
/// to the device, and so is a graph's, since the fill would be a node. What cannot be filled is
/// counted in the report. Thread-safe; call without any of memlab's locks.
void fill_from_driver(Memory& memory, const DriverAllocation& allocation, std::uint64_t address,
                      Context* context);

/// The driver lacked memory for a call that takes it implicitly (code, contexts, graphs, streams,
/// events): releases cached memory of `device` (-1: of the current context's; without one, of all).
/// False when there was none.
bool release_for_driver(Memory& memory, CUdevice device = -1) noexcept;

/// How often an allocation is tried again after memory was released for it. Another thread may take
/// what was, and what a context has that was ending is released only where nothing else is.
inline constexpr int most_retries = 4;

/// Makes such a call, and makes it again as long as release_for_driver() is of help, and once more
/// if other processes were.
template <class Real>
CUresult retry_after_release(Memory& memory, const Real& real, CUdevice device = -1) {
    CUresult result = real();
    for (int i = 0; i < most_retries && result == CUDA_ERROR_OUT_OF_MEMORY &&
                    release_for_driver(memory, device);
         ++i) {
        result = real();
    }
    if (result == CUDA_ERROR_OUT_OF_MEMORY && memory.others_gave_back(device, 0)) {
        result = real();
    }
    return result;
}

/// Call before `bytes` of managed memory are allocated, and with 0 after a program that has some
/// freed other memory. The driver never refuses it for lack of device memory but moves pages to the
/// host. So if the program's managed memory does not fit beside the pools' cached memory, the
/// latter is released.
void reclaim_for_managed(Memory& memory, std::uint64_t bytes);

}  // namespace memlab::interpose
