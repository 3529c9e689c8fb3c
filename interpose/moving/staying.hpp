// What of the process's device memory does not move: how much of which kind, and from which place
// of the program. Bounded: the largest places, then a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// Memory of one kind that one call site allocated on a device.
struct StayingMemory {
    std::string kind;  ///< "async_pool", "array", ...; "segment": of the pool's, from cuMemAlloc
    std::uint32_t device = 0;
    std::uint32_t stack = 0;
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::string place;  ///< of the `named` largest ones; empty: not known
};

/// Of the device (-1: of all), the largest first. Waits for a lock of the recorder's until
/// `deadline_ns` of monotonic_ns(); without it no place is known. May throw std::bad_alloc. Call
/// without any of memlab's locks.
std::vector<StayingMemory> staying_memory(Memory& memory, CUdevice device, std::size_t named,
                                          std::uint64_t deadline_ns);

/// "async_pool 1.00 GiB (900.00 MiB from train.py:42 in step, 124.00 MiB from 3 other places),
/// array 2.00 MiB"; empty: nothing stays. May throw std::bad_alloc.
std::string staying_text(const std::vector<StayingMemory>& staying);

}  // namespace memlab::interpose
