// Captures the calling thread's native stack.
//
// By memlab's own unwinder (profiler/unwind/walk.hpp), which reads .eh_frame, so it sees through
// code without frame pointers. A build with MEMLAB_VERIFY_UNWIND compares every stack with
// libgcc's.
#pragma once

#include <cstddef>

#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler {

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread,
/// memlab's own frames left out. Takes no lock, allocates nothing, may be called on any thread and
/// in signal handlers.
template <std::size_t room>
[[gnu::hot]] void capture_stack(StackRoom<room>& stack, std::size_t limit);
extern template void capture_stack(CapturedStack& stack, std::size_t limit);
extern template void capture_stack(ShortStack& stack, std::size_t limit);

}  // namespace memlab::profiler
