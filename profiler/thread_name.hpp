// What the kernel calls threads, and thereby ps, top and every debugger.
#pragma once

#include <string>

namespace memlab::profiler {

/// Of the calling thread (prctl, PR_GET_NAME): 15 bytes at most. A thread begins with the name of
/// the one that made it. May throw std::bad_alloc.
std::string own_thread_name();

/// Of the thread that the process began with, which is the process's too; empty where /proc does
/// not tell. May throw std::bad_alloc.
std::string process_name();

}  // namespace memlab::profiler
