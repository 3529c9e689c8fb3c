// Whether this process can step aside at all, and when its devices have nothing left to do.
//
// The second is asked by events, never by a call that waits for the device: such a call cannot be
// left, and work that waits for a thread at the gate would never end.
#pragma once

#include <cstdint>
#include <string>

#include "interpose/memory/memory.hpp"

namespace memlab::interpose {

/// A sentence that says why memory cannot be moved now, by what is known without waiting; empty:
/// it can. May throw std::bad_alloc.
std::string why_not_to_move(Memory& memory);

/// Waits until all work that was submitted to any context is complete, until `deadline_ns`, while
/// nothing more is submitted. Empty, or why it was not. May throw std::bad_alloc.
std::string drain(Memory& memory, std::uint64_t deadline_ns);

/// Bytes of host memory that this process may take, by the machine and the cgroups that it is in.
/// May throw std::bad_alloc.
std::uint64_t host_memory_available();

}  // namespace memlab::interpose
