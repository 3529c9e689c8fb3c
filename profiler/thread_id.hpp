// The kernel's id of the calling thread, without a system call on every event.
#pragma once

#include <cstdint>

namespace memlab::profiler {

std::uint32_t thread_id();

/// In a forked child: the calling thread has a new id.
void forget_thread_id();

}  // namespace memlab::profiler
