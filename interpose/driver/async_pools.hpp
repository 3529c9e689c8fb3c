// The driver's pools of stream-ordered memory: the owner, the kind of memory and the size of each.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"
#include "trace/event.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class AsyncPools {
  public:
    /// Marks a pool of host or managed memory.
    static constexpr CUdevice on_no_device = -2;

    void created(CUmemoryPool pool, const CUmemPoolProps& properties);
    /// The driver named it as the one of that location: a default pool, or one that is known.
    void named(CUmemoryPool pool, const CUmemLocation& location, CUmemAllocationType type);
    void destroyed(CUmemoryPool pool);

    /// The device whose memory the pool holds, or on_no_device. `current` for a pool whose creation
    /// memlab did not see (the devices' default pools).
    CUdevice find_device(CUmemoryPool pool, CUdevice current) const;

    /// What is allocated from the pool: its location decides. Null: the current device's pool. Free
    /// of locks as long as every pool holds memory of a device.
    trace::MemoryKind kind_of(CUmemoryPool pool) const {
        return pool != nullptr && any_elsewhere_.load(std::memory_order_acquire)
                   ? find_kind(pool)
                   : trace::MemoryKind::async_pool;
    }

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
        trace::MemoryKind kind;
    };
    /// Null: it is not known. Valid as long as the lock is held.
    const Known* find(CUmemoryPool pool) const MEMLAB_REQUIRES(mutex_);
    trace::MemoryKind find_kind(CUmemoryPool pool) const;
    mutable threads::Mutex mutex_;
    std::vector<Known> known_ MEMLAB_GUARDED_BY(mutex_);
    std::atomic<bool> used_{false};
    std::atomic<bool> any_elsewhere_{false};  ///< a pool of another kind than async_pool
};

/// The process-wide instance; never destroyed.
AsyncPools& async_pools();

/// Bytes that the pool has reserved on the device, in use or not; 0 when the driver cannot tell.
std::uint64_t reserved_bytes_in(CUmemoryPool pool);

/// Bytes of the device that all pools and graphs of the process have reserved, as far as the driver
/// tells; 0 as long as none was used, and when the host is out of memory.
std::uint64_t reserved_by_pools(CUdevice device) noexcept;

}  // namespace memlab::interpose
