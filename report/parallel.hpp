// Independent pieces of work on all processors.
#pragma once

#include <cstddef>
#include <functional>

namespace memlab::report {

/// Calls work(i) for each i below `count`, in any order, in this thread and in others, as many as
/// there are processors, at most 16; work(0) in this one. Returns when all have ended; an exception
/// of `work` propagates then, and what had not begun is left out. Without other threads this one
/// does all.
void for_each_in_parallel(std::size_t count, const std::function<void(std::size_t)>& work);

/// Whether this thread does such work, of which every processor has plenty.
bool all_processors_busy();

}  // namespace memlab::report
