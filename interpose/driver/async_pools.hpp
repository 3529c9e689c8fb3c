// The driver's pools of stream-ordered memory: the owner and size of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"

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

    /// Memory was taken from one, or for a graph: from then on they may hold some. Cheap.
    void note_use() {
        if (!used_.load(std::memory_order_relaxed)) {
            used_.store(true, std::memory_order_relaxed);
        }
    }
    bool used() const { return used_.load(std::memory_order_relaxed); }

    /// The known pools with memory of the device.
    std::vector<CUmemoryPool> on(CUdevice device) const;

  private:
    struct Known {
        CUmemoryPool pool;
        CUdevice device;
    };
    mutable threads::Mutex mutex_;
    std::vector<Known> known_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> used_{false};
};

/// The process-wide instance; never destroyed.
AsyncPools& async_pools();

/// Bytes that the pool has reserved on the device, in use or not; 0 when the driver cannot tell.
std::uint64_t reserved_bytes_in(CUmemoryPool pool);

/// Bytes of the device that all pools and graphs of the process have reserved, as far as the driver
/// tells; 0 as long as none was used, and when the host is out of memory.
std::uint64_t reserved_by_pools(CUdevice device) noexcept;

}  // namespace memlab::interpose
