// Warns when a forked child uses CUDA. CUDA does not survive a fork: in a child that was forked
// after cuInit the driver returns CUDA_ERROR_NOT_INITIALIZED from every call. The program sees
// "initialization error", far from the fork that caused it; memlab can name that fork.
//
// Only the first such child warns (data loaders fork dozens): the count is in a page shared by
// parent and children. Children write no files; the parent's report states their number.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// Call in a process that has started CUDA, before it forks. Without memory for the shared page
/// each child warns for itself and the count stays 0.
void prepare_fork_warning() noexcept;

/// Call in the child, right after the fork; async-signal-safe. `cuda_started`: in the parent. A
/// grandchild counts as forked from the same CUDA process.
void note_fork(bool cuda_started) noexcept;

/// The driver returned CUDA_ERROR_NOT_INITIALIZED: warns if a fork is the reason. Thread-safe;
/// without the heap, whose lock another thread of the parent may have held.
void driver_not_initialized() noexcept;

/// Number of processes forked from this one, at any depth, that failed to use CUDA so far.
std::uint32_t refused_children() noexcept;

}  // namespace memlab::interpose
