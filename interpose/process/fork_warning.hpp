// CUDA does not survive a fork: in a child that was forked after cuInit the driver answers every
// call with CUDA_ERROR_NOT_INITIALIZED. The program sees "initialization error", far from the fork
// that caused it; memlab was there at both and can name it.
//
// Said once, by the first such child, however many there are (data loaders fork by the dozen): a
// page that parent and children share holds the count. The children write no files; the parent's
// report says how many there were when it ended.
#pragma once

#include <cstdint>

namespace memlab::interpose {

/// In a process that has started CUDA, before it forks. Without memory for the shared page each
/// child warns for itself and the count stays 0.
void prepare_fork_warning() noexcept;

/// In the child, right after the fork; async-signal-safe. `cuda_started`: in this process's parent.
/// A child of a child stands to the same process.
void note_fork(bool cuda_started) noexcept;

/// The driver answered CUDA_ERROR_NOT_INITIALIZED: warns when that is because of a fork.
/// Thread-safe; without the heap, whose lock another thread of the parent may have held.
void driver_not_initialized() noexcept;

/// How many processes forked from this one, at any depth, have used CUDA in vain so far.
std::uint32_t refused_children() noexcept;

}  // namespace memlab::interpose
