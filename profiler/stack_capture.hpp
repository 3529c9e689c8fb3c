// Captures the calling thread's native stack.
//
// By memlab's own unwinder (profiler/unwind/walk.hpp), which reads .eh_frame, so it sees through
// code without frame pointers. A build with MEMLAB_VERIFY_UNWIND compares every stack with
// libgcc's.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::profiler {

struct CapturedStack {
    static constexpr std::size_t max_depth = 256;

    std::size_t depth = 0;
    bool truncated = false;               ///< deeper than asked for
    bool ends_early = false;              ///< nothing tells the caller of the last frame
    std::uintptr_t addresses[max_depth];  ///< return addresses, leaf first; only [0, depth) is set

    /// Where each frame ends on the stack (its canonical frame address): an object on the stack
    /// lies in the first frame that ends above it. The outermost frame's end may be unknown: all
    /// ones.
    std::uintptr_t ends[max_depth];
};

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread,
/// memlab's own frames left out. Takes no lock, allocates nothing, may be called on any thread and
/// in signal handlers.
void capture_stack(CapturedStack& stack, std::size_t limit);

}  // namespace memlab::profiler
