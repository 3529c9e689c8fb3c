// Managed memory while the process is away: the driver is asked to keep it on the host, and later
// to bring back what was to be on a GPU. It is the driver's to move at any time, so nothing depends
// on it: what does not fit, or what the driver refuses, is left to page faults.
#pragma once

#include <cstdint>
#include <vector>

#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// Thread-safety: none; the mover's.
class ManagedMemory {
  public:
    /// Of the device (-1: of all), the largest blocks first, no more than there is room for. While
    /// no work is under way. Returns how much was sent.
    std::uint64_t send_to_host(Memory& memory, CUdevice device, std::uint64_t room) noexcept;
    /// To the GPU where the program wanted it, or prefetched it last; where that is not known it
    /// comes by page faults. Returns how much was.
    std::uint64_t bring_back(Memory& memory) noexcept;

  private:
    struct Block {
        CUdeviceptr address = 0;
        std::uint64_t bytes = 0;
        CUdevice device = 0;  ///< in whose context it was allocated
        CUdevice home = -1;   ///< below 0: not known
    };
    std::vector<Block> sent_;
};

}  // namespace memlab::interpose
