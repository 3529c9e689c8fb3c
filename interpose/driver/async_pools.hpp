// The driver's own pools of stream-ordered memory: whose memory each holds, and how much of it.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class AsyncPools {
  public:
    /// Not the device's memory: the host's.
    static constexpr CUdevice on_host = -2;

    void created(CUmemoryPool pool, const CUmemPoolProps& properties);
    void destroyed(CUmemoryPool pool);

    /// The device whose memory the pool holds, or on_host. A pool whose creation was not seen (the
    /// devices' own ones) is `current`'s.
    CUdevice device_of(CUmemoryPool pool, CUdevice current) const;

  private:
    struct Known {
        CUmemoryPool pool;
        CUdevice device;
    };
    mutable std::mutex mutex_;
    std::vector<Known> known_;
};

/// Of this process. Never destroyed.
AsyncPools& async_pools();

/// The bytes that the pool holds from the device, in use or not; 0 when the driver does not tell.
std::uint64_t reserved_by(CUmemoryPool pool);

}  // namespace memlab::interpose
