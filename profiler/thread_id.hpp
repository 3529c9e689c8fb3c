// The calling thread's kernel id (gettid), cached per thread.
#pragma once

#include <cstdint>

namespace memlab::profiler {

std::uint32_t thread_id();

/// The same after register_thread() was called in this thread; 0 before.
std::uint32_t registered_thread_id();
void register_thread();

/// In a forked child: the calling thread has a new id and is not registered.
void reset_thread_id();

}  // namespace memlab::profiler
