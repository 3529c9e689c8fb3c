// The implementation of the memory calls: served by a pool, or passed to the driver and recorded.
#pragma once

#include <optional>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/driver.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/driver/one_stream.hpp"
#include "interpose/memory/driver_allocation.hpp"
#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// Serves cuMemAlloc from the current context's pool, or from the driver by `real` where the pool
/// cannot (where a capture may forbid it, pooling off, no context, invalid arguments). Throws
/// std::bad_alloc only before the pool has served it.
CUresult allocate_device(Memory& memory, Api api, CUdeviceptr* address, std::size_t bytes,
                         FunctionRef<CUresult()> real);

/// The driver's own free, for memory that the driver served.
using DriverFree = FunctionRef<CUresult()>;

/// cuMemFree of any address: a pooled block, recorded driver memory of any kind, or unknown memory.
/// Needs no host memory.
CUresult free_device(Memory& memory, Api api, CUdeviceptr address, DriverFree real_free);

/// A free while the thread is inside memlab, or without a session (null): a pooled block is queued
/// and freed by a later call; anything else is passed to the driver.
CUresult free_nested(Memory* memory, Api api, CUdeviceptr address, DriverFree real_free);

/// Performs the queued frees, and reports how many the queue had no room for. Call without any of
/// memlab's locks.
void serve_nested_frees(Memory& memory);

/// cuMemFreeAsync: as free_device, but the host never waits and only the stream's order counts.
CUresult free_device_async(Memory& memory, Api api, CUdeviceptr address, StreamKey stream,
                           DriverFree real_free);

/// Makes a driver allocation and records it. `real` is the call; `address` reads its result. If it
/// fails for lack of memory, cached memory is released and the call repeated. Beyond the
/// device's limit (memory_limit.hpp) it is out of memory as well.
CUresult allocate_from_driver(Memory& memory, Api api, const DriverAllocation& allocation,
                              FunctionRef<CUresult()> real, FunctionRef<std::uint64_t()> address);

/// Records memory that appeared without an allocation call (for example a mapped import).
void record_driver_allocation(Memory& memory, Api api, const DriverAllocation& allocation,
                              std::uint64_t address);

/// Frees a driver allocation, and records the free if the allocation was recorded.
CUresult free_from_driver(Memory& memory, Api api, HandleClass handles, std::uint64_t address,
                          DriverFree real_free);

/// Records the end of a driver allocation that was released without a free call.
void record_driver_free(Memory& memory, Api api, HandleClass handles, std::uint64_t address);

/// The pool's view of an address inside one of its segments.
struct PooledBlock {
    Context* context = nullptr;
    std::optional<allocator::BlockInfo> block;  ///< nullopt: not allocated
};
/// Whether a legacy IPC handle of this live block names exactly the block: it is at the base of a
/// segment from cuMemAlloc.
bool exports_exactly(const PooledBlock& pooled);

/// The pool and block of a pooled address; nullopt for other memory. `nested`: the thread is inside
/// memlab and may hold the pool's lock; then also nullopt while any thread holds it.
std::optional<PooledBlock> find_pooled(Memory& memory, CUdeviceptr address, bool nested = false);

/// The driver's figures for the whole device of the current context.
struct UsedMemory {
    std::uint64_t used = 0;
    std::uint64_t total = 0;
};
/// nullopt while a stream captures, and where the driver does not tell.
std::optional<UsedMemory> used_memory(Memory& memory);

/// What is known of a call of the ledger's of which there is no record of its own.
enum class CallWas : std::uint8_t {
    skipped,         ///< not measured
    skipped_return,  ///< not measured, and it gives memory back
    without_change,  ///< measured; it could have taken memory
};
/// Counts it; recorded with the device's next sample. `device`: of DeviceInfo::max_gpus.
void count_unrecorded(CUdevice device, trace::LedgerKind kind, CallWas was);
/// Records what was counted since the latest sample of a described device.
void record_unrecorded(Memory& memory, CUdevice device);

/// Records a sample of a described device, the current context's.
void record_sample(Memory& memory, CUdevice device, const UsedMemory& sample);

/// Samples how much of the device is in use, rate-limited (sample_schedule.hpp). Its context must
/// be current and the device described.
void sample_device(Memory& memory, CUdevice device);

/// The same after a wait for the device, where code and buffers that were loaded for the work show:
/// as often as that figure changes, at most once a second where it does not.
void sample_after_wait(Memory& memory, CUdevice device);

}  // namespace memlab::interpose
