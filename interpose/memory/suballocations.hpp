// What an allocator of the program's tells of its blocks, recorded: PyTorch's cache calls
// hooks/pytorch.cpp for each. Nothing is recorded, and nothing happens, without a recording.
#pragma once

#include <cstdint>

#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

// Thread-safety: all, from any thread. They take locks of memlab's only. Out of host memory they
// throw std::bad_alloc.

/// The allocator handed out `bytes` at `address` of this GPU (the driver's ordinal), and has
/// `reserved` bytes there.
void record_suballocation(Memory& memory, int gpu, std::uint64_t address, std::uint64_t bytes,
                          std::uint64_t reserved);
/// It took them back. A block that a stream still uses may not be handed out again yet; the
/// allocator does not tell until when.
void record_suballocation_freed(Memory& memory, int gpu, std::uint64_t address,
                                std::uint64_t bytes);
/// It could not serve `bytes`, even after it gave back what it could.
void record_suballocator_oom(Memory& memory, int gpu, std::uint64_t bytes);

}  // namespace memlab::interpose
