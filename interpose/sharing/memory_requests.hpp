// Between processes: "does anybody have device memory to spare?"
//
// A process that is about to answer out of memory asks, and those that hold unused memory of that
// GPU give it back. It takes a process-shared futex and nothing else: no descriptor, file or thread
// that a program could see, close, inherit or leave behind. The kernel knows such a futex by file
// and offset, so the word is one of the header of the driver's library, which every process that
// uses CUDA maps from the same file, also in most containers. Nobody ever writes it: only that
// somebody was woken is told, by bits of the futex's bitset that stand for the GPU's UUID. Which
// word it is depends on the user. So processes of another user, or over another libcuda, are not
// asked; those have to wait until unused memory goes back by time.
//
// Whoever else wakes the word has unused memory given back, which plain CUDA would not hold either.
#pragma once

#include <atomic>
#include <cstdint>

#include "interpose/driver/cuda_abi.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class MemoryRequests {
  public:
    /// Stands for the device, in all processes; 0 where the driver does not tell its UUID.
    static std::uint32_t bit_of(CUdevice device) noexcept;

    /// Waits until somebody asks for memory of one of these devices (bits) or calls wake_own(), but
    /// not beyond `deadline_ns` (monotonic_ns()), and maybe less long. For one thread of the
    /// process. True: somebody else asked.
    bool wait(std::uint32_t devices, std::uint64_t deadline_ns) noexcept;

    /// Ends wait(). Async-signal-safe.
    void wake_own() noexcept;

    /// Asks the others for memory of the device. `bytes`: how much is needed, 0 where that is
    /// unknown; `limit`: what this process may use in all, 0: no limit. Where nobody has any it
    /// returns after 40 ms, and at once if that was so in the last two seconds; else when there is
    /// enough or no more comes, after half a second at most. True: trying again makes sense.
    bool others_gave_back(CUdevice device, std::uint64_t bytes, std::uint64_t limit) noexcept;

  private:
    const std::uint32_t* word() noexcept;
    bool ask(std::uint32_t device) noexcept;

    std::atomic<std::uint32_t> waiting_{0};  ///< what wait() waits for at the moment
    std::atomic<std::uint32_t> asking_{0};   ///< threads in others_gave_back()
    std::atomic<std::uint64_t> alone_at_ns_{0};
    std::atomic<std::uintptr_t> page_{0};  ///< of the word; 0: not looked for
    std::uint32_t own_[1024] = {};         ///< where there is no such page: only this process
};

}  // namespace memlab::interpose
