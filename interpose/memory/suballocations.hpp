// Records the blocks that an allocator of the program's reports: PyTorch's cache through
// hooks/pytorch.cpp, others through memlab.h or NVTX. Does nothing without a recording.
#pragma once

#include <cstdint>
#include <string_view>

#include "interpose/memory/memory.hpp"
#include "profiler/stack_capture.hpp"

namespace memlab::interpose {

// Thread-safety: all, from any thread. They take locks of memlab's only. Out of host memory they
// throw std::bad_alloc.

/// Whether these bytes are CUDA memory, and on this GPU if the driver says which. Calls the driver.
bool is_memory_of(Memory& memory, int gpu, std::uint64_t address, std::uint64_t bytes);

/// PyTorch's cache handed out `bytes` at `address` of this GPU (the driver's ordinal), and has
/// `reserved` bytes there. Returns the call site. `origin`: the call of the forward for which
/// backward allocates.
profiler::CallSite record_suballocation(Memory& memory, int gpu, std::uint64_t address,
                                        std::uint64_t bytes, std::uint64_t reserved,
                                        const profiler::CallOrigin& origin);
/// It took them back. A block that a stream still uses may not be handed out again yet; the
/// allocator does not report until when.
void record_suballocation_freed(Memory& memory, int gpu, std::uint64_t address,
                                std::uint64_t bytes);
/// It could not serve `bytes`, even after it gave back what it could.
void record_suballocator_oom(Memory& memory, int gpu, std::uint64_t bytes,
                             const profiler::CallOrigin& origin);

/// The same for an allocator that is known by a name of its own, and does not tell what it has
/// reserved. False, and nothing is recorded: without a recording, where the address is in no device
/// memory, or when there are Suballocators::max_allocators of other names.
bool record_suballocation_by(Memory& memory, std::string_view allocator, std::uint64_t address,
                             std::uint64_t bytes);
/// False when the allocator never handed out anything in the memory that holds the address.
bool record_suballocation_freed_by(Memory& memory, std::string_view allocator,
                                   std::uint64_t address);
/// The block at `address` of such an allocator, whichever it is, has this many bytes now; 0: it was
/// taken back.
void record_suballocation_resized(Memory& memory, std::uint64_t address, std::uint64_t bytes);
/// It took back all that it had handed out.
void record_all_suballocations_freed_by(Memory& memory, std::string_view allocator);

}  // namespace memlab::interpose
