// The kernel's id of the calling thread, without a system call on every event.
#pragma once

#include <cstdint>

namespace memlab::profiler {

std::uint32_t thread_id();

/// The same once introduce_thread() was called in this thread; 0 before.
std::uint32_t introduced_thread_id();
void introduce_thread();

/// In a forked child: the calling thread has a new id, and nobody knows it.
void forget_thread_id();

}  // namespace memlab::profiler
