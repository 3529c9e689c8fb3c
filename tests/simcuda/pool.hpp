// Stream-ordered memory pools.
#pragma once

#include <cstdint>

#include "tests/simcuda/driver_abi.hpp"
#include "tests/simcuda/timeline.hpp"

namespace memlab::simcuda {

struct Pool;

// Where the pool's memory is: of other pools on a device.
bool is_managed(const Pool& pool);
bool is_on_host(const Pool& pool);

// The device's default pool, made when first asked for.
Pool& default_pool(int device);

// Frees all the memory of the device's pools: its primary context went.
void reset_pools(int device);

// The host has waited for the GPU: pools give back what they cache beyond their release threshold.
void release_idle_pool_memory();

// A request needs it (H100: cuMemAlloc takes what the default pool keeps below its release
// threshold).
void release_cached_memory(int device);

// cuMemFreeAsync's and cuMemFree's part for memory of a pool: back into it when the work before on
// the stream is done.
CUresult free_to_pool(uint64_t address, Stream& stream);

}  // namespace memlab::simcuda
