// What happens to memory calls: served by a pool, or passed to the driver and recorded.
#pragma once

#include <optional>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/memory/driver_allocation.hpp"
#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// Serves cuMemAlloc from the current context's pool, or from the driver where a pool must not
/// (capture under way, not pooling, no context, arguments that only an error fits).
CUresult allocate_device(Memory& memory, Api api, CUdeviceptr* address, std::size_t bytes);

/// How a free call frees what the driver itself served.
using DriverFree = FunctionRef<CUresult()>;

/// cuMemFree of anything: a pooled block, recorded driver memory of any kind, or a stranger.
CUresult free_device(Memory& memory, Api api, CUdeviceptr address, DriverFree real_free);

/// A free that came while the thread is inside memlab, or where memlab is not at work: of a pooled
/// block it is noted, and served by the next call that may; of anything else the driver does it.
CUresult free_nested(Memory* memory, Api api, CUdeviceptr address, DriverFree real_free);

/// Serves the frees that were noted. Call without any lock of ours.
void serve_nested_frees(Memory& memory);

/// cuMemFreeAsync: as free_device, but the host never waits and order is the stream's alone.
CUresult free_device_async(Memory& memory, Api api, CUdeviceptr address, StreamKey stream,
                           DriverFree real_free);

/// Makes a driver allocation and records it. `real` is the call; `address` reads its result. Out of
/// memory that our own cache causes is repaired: caches are released and the call repeated once.
/// Past the device's limit (memory_limit.hpp) it is out of memory, too.
CUresult allocate_from_driver(Memory& memory, Api api, const DriverAllocation& allocation,
                              FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address);

/// Managed memory is about to grow by so much. The driver never refuses it for want of room on the
/// device, it moves pages to the host: so what pools keep unused goes back where it would be in the
/// way of what the program has of such memory.
void make_room_for_managed(Memory& memory, std::uint64_t bytes);

/// Records memory that appeared without an allocation call of its own (a mapped import, say).
void record_driver_allocation(Memory& memory, Api api, const DriverAllocation& allocation,
                              std::uint64_t address);

/// Frees a driver allocation and records it when it was known.
CUresult free_from_driver(Memory& memory, Api api, HandleClass handles, std::uint64_t address,
                          DriverFree real_free);

/// Ends a driver allocation that went away without a free call of its own.
void record_driver_free(Memory& memory, Api api, HandleClass handles, std::uint64_t address);

/// Where a pooled address lies.
struct PooledBlock {
    Context* context = nullptr;
    std::optional<allocator::BlockInfo> block;  ///< none: inside a segment, but not allocated
};
/// Whether a legacy IPC handle of this live block names just it: it lies at the base of a segment
/// of cuMemAlloc's.
bool exports_exactly(const PooledBlock& pooled);

/// The pool and block of a pooled address; nothing for other memory. `nested`: the thread is inside
/// memlab already and may hold the pool's lock; then nothing is found while anybody holds it.
std::optional<PooledBlock> find_pooled(Memory& memory, CUdeviceptr address, bool nested = false);

/// Notes how much of the device is in use, not more often than every few milliseconds.
void sample_device(Memory& memory, Context& context);

}  // namespace memlab::interpose
