// An allocation failed for lack of memory: into the recording, and, the first time in a process,
// explained on stderr.
#pragma once

#include "interpose/driver/driver.hpp"
#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// `context` is where the memory was to come from; null: nothing is known and nothing is said. May
/// take milliseconds; call without any lock held. Never throws.
void report_oom(Memory& memory, Api api, std::uint32_t stack, Context* context,
                trace::MemoryKind kind, std::uint64_t requested, std::uint64_t largest_free_block,
                CUresult error) noexcept;

}  // namespace memlab::interpose
