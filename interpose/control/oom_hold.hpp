// MEMLAB_HOLD_ON_OOM: a thread whose allocation has failed for lack of memory waits before the
// program gets the error, so that the process can be looked at while everything is still there.
//
// It waits outside every lock of memlab's, until it is released or its time is over; other threads
// go on. The caller may be inside of a lock of the program's: PyTorch reports under that of its
// allocator.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class OomHold {
  public:
    static constexpr std::uint64_t default_seconds = 600;
    static constexpr std::uint64_t max_seconds = 7ULL * 24 * 3600;

    /// `seconds`: how long threads wait at most, from the next failure on; 0: not at all.
    void set(std::uint64_t seconds) noexcept { seconds_.store(seconds); }
    std::uint64_t seconds() const noexcept { return seconds_.load(std::memory_order_relaxed); }

    /// Waits if that is on; says so on stderr. Call without any of memlab's locks.
    void wait(CUdevice gpu, std::uint64_t requested) noexcept;

    /// Lets those that wait go on. Returns how many these are.
    std::uint32_t release() noexcept;

    struct State {
        std::uint32_t waiting = 0;
        std::uint64_t since_ns = 0;  ///< monotonic_ns() when the first of them began
        std::uint64_t requested = 0;
        CUdevice gpu = 0;
    };
    State state() const noexcept;

    /// In a forked child, in which nobody waits.
    void forget_after_fork() noexcept { waiting_.store(0); }

  private:
    std::atomic<std::uint64_t> seconds_{0};
    std::atomic<std::uint32_t> releases_{0};  ///< a futex
    std::atomic<std::uint32_t> waiting_{0};
    std::atomic<std::uint64_t> since_ns_{0};
    std::atomic<std::uint64_t> requested_{0};
    std::atomic<CUdevice> gpu_{0};
};

/// The process's.
OomHold& oom_hold();

}  // namespace memlab::interpose
