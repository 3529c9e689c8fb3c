// The driver's pools of stream-ordered memory: the owner and size of each.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class AsyncPools {
  public:
    /// Marks a pool that holds host memory.
    static constexpr CUdevice on_host = -2;

    void created(CUmemoryPool pool, const CUmemPoolProps& properties);
    void destroyed(CUmemoryPool pool);

    /// The device whose memory the pool holds, or on_host. `current` for a pool whose creation
    /// memlab did not see (the devices' default pools).
    CUdevice find_device(CUmemoryPool pool, CUdevice current) const;

  private:
    struct Known {
        CUmemoryPool pool;
        CUdevice device;
    };
    mutable std::mutex mutex_;
    std::vector<Known> known_;
};

/// The process-wide instance; never destroyed.
AsyncPools& async_pools();

/// Bytes that the pool has reserved on the device, in use or not; 0 when the driver cannot tell.
std::uint64_t reserved_bytes_in(CUmemoryPool pool);

}  // namespace memlab::interpose
