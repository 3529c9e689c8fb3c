// Enforces the device memory limit: all memory that memlab or the program takes from the driver
// passes here.
//
// The driver's own count of used memory is authoritative and is queried at each growth only. So
// contexts, modules, other processes and every kind of memory count, and no bookkeeping can go
// wrong. Query and allocation happen under one lock per device: two threads cannot exceed the limit
// together.
//
// What is unknown before the call is checked after it and undone: a CUDA array may take more than
// its elements, a stream-ordered pool may serve an allocation from its reserve or grow. The device
// may then exceed the limit for a moment. Never prevented: memory that the driver takes outside of
// an allocation call (contexts, modules, graph launches, managed memory when touched). It counts as
// used for the next allocation.
//
// Managed memory is not refused at the limit: on a smaller GPU its allocation would succeed as
// well, and its pages would move to the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/options/device_limits.hpp"
#include "threads/mutex.hpp"
#include "trace/record.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Each needs a current context on the device in
/// question, except limit_for() and applies().
class MemoryLimits {
  public:
    explicit MemoryLimits(std::vector<DeviceLimit> wanted) : wanted_(std::move(wanted)) {}

    /// The limit of the device in bytes; 0: none.
    std::uint64_t limit_for(CUdevice device);

    /// Sets it, from the next allocation on; 0, or no less than the device has: none. Needs no
    /// current context.
    void set(CUdevice device, std::uint64_t bytes);

    /// What the device could give now, in bytes: the driver's free memory within the limit. The
    /// highest number when the driver does not tell. Works during captures.
    std::uint64_t available(CUdevice device);

    /// Whether some device of this process is limited. Queries every device; for a warning at
    /// start.
    bool applies();
    /// Whether any limit was set.
    bool wanted() const;

    /// Runs `real`, which takes `bytes` of the device from the driver, or returns
    /// CUDA_ERROR_OUT_OF_MEMORY if that would exceed the limit.
    CUresult take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real);

    /// The same where `bytes` is a lower bound. If the device exceeds the limit after `real`, and
    /// its use has grown, `undo` frees the allocation again.
    CUresult take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real,
                  FunctionRef<void()> undo);

  private:
    CUresult take_locked(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real,
                         const FunctionRef<void()>* undo);

    static constexpr int max_devices = trace::DeviceInfo::max_gpus;
    static constexpr std::uint64_t unknown = 0;  ///< cached values are limit + 1

    const std::vector<DeviceLimit> wanted_;
    std::atomic<bool> was_set_{false};  ///< set() was called
    std::atomic<std::uint64_t> known_[max_devices] = {};
    /// Held from the device's figure to what is taken by it; after a pool's lock, innermost.
    threads::Mutex device_mutexes_[max_devices];
};

/// The driver's free and total bytes of the current context's device; works during captures.
CUresult device_memory_info(std::size_t* free, std::size_t* total);

}  // namespace memlab::interpose
