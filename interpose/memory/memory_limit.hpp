// The limit on device memory at work: whoever takes memory of a device from the driver does it
// through here.
//
// The driver's own count of what is used is the truth, asked for at each growth and only then: so
// contexts, modules, other processes and every kind of memory count, with no books of our own that
// could go wrong. Asking and taking happen under one lock per device: two threads cannot pass the
// limit together.
//
// What cannot be known before the call is looked at after it, and undone: a CUDA array may take
// more than its elements, a stream-ordered pool may serve an allocation from what it holds or grow.
// The device may then have more in use than the limit for a moment. Never prevented: memory that
// the driver takes outside of an allocation call (contexts, modules, graphs when they are launched,
// managed memory when it is touched). It counts as used for the next allocation.
//
// Managed memory is not refused at the limit: on a smaller GPU its allocation would succeed as
// well, and its pages would move to the host.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "interpose/driver/cuda_abi.hpp"
#include "interpose/driver/function_ref.hpp"
#include "interpose/options/device_limits.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Each needs a current context on the device that
/// it is asked about, but for of() and applies().
class MemoryLimits {
  public:
    explicit MemoryLimits(std::vector<DeviceLimit> wanted) : wanted_(std::move(wanted)) {}

    /// The bytes that the program may see of the device; 0: all of them.
    std::uint64_t of(CUdevice device);

    /// Whether some device of this process is limited. For a warning; asks every device.
    bool applies();
    /// Whether any limit was asked for at all.
    bool wanted() const;

    /// Runs `real`, which takes `bytes` of the device from the driver, unless they are past the
    /// limit: then CUDA_ERROR_OUT_OF_MEMORY.
    CUresult take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real);

    /// The same where `bytes` is only what is certain. When the device has more in use than the
    /// limit after `real`, and more than before it, `undo` takes it back.
    CUresult take(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real,
                  FunctionRef<void()> undo);

  private:
    CUresult take_locked(CUdevice device, std::uint64_t bytes, FunctionRef<CUresult()> real,
                         const FunctionRef<void()>* undo);

    static constexpr int max_devices = 64;
    static constexpr std::uint64_t unknown = 0;  ///< else the limit + 1

    const std::vector<DeviceLimit> wanted_;
    std::atomic<std::uint64_t> known_[max_devices] = {};
    std::mutex growing_[max_devices];  ///< after a pool's lock; nothing is locked within
};

/// The driver's free and total bytes of the current context's device, whatever is being captured.
CUresult device_memory_info(std::size_t* free, std::size_t* total);

}  // namespace memlab::interpose
