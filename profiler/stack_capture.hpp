// Captures the calling thread's native stack.
//
// The unwinder is libgcc's _Unwind_Backtrace, linked statically: it reads .eh_frame, so it sees
// through code without frame pointers, and on glibc >= 2.35 it finds the tables with
// _dl_find_object, which takes no lock. glibc's own backtrace() would dlopen libgcc_s inside a
// program that may be holding the loader's lock.
#pragma once

#include <cstddef>
#include <cstdint>

namespace memlab::profiler {

struct CapturedStack {
    static constexpr std::size_t max_depth = 256;

    std::size_t depth = 0;
    bool truncated = false;               ///< deeper than asked for
    std::uintptr_t addresses[max_depth];  ///< return addresses, leaf first; only [0, depth) is set

    /// Where each frame ends on the stack (its canonical frame address): an object on the stack
    /// lies in the first frame that ends above it. The outermost frame's end may be unknown: all
    /// ones.
    std::uintptr_t ends[max_depth];
};

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread,
/// memlab's own frames left out. Takes no lock, allocates nothing, may be called on any thread.
void capture_stack(CapturedStack& stack, std::size_t limit);

}  // namespace memlab::profiler
