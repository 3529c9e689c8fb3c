// The kernel's names of threads (comm), as shown by ps, top and debuggers.
#pragma once

#include <string>

namespace memlab::profiler {

/// The calling thread's name (prctl PR_GET_NAME), at most 15 bytes. A thread inherits its creator's
/// name. May throw std::bad_alloc.
std::string own_thread_name();

/// The main thread's name, which is the process's; empty if /proc is not readable. May throw
/// std::bad_alloc.
std::string process_name();

}  // namespace memlab::profiler
