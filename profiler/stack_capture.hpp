// Captures the calling thread's native stack.
//
// Uses memlab's unwinder (profiler/unwind/walk.hpp), which reads .eh_frame, so needs no frame
// pointers. A build with MEMLAB_VERIFY_UNWIND compares every stack with libgcc's.
#pragma once

#include <cstddef>

#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler {

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread, except
/// memlab's own frames. Takes no lock, allocates nothing; async-signal-safe.
template <std::size_t capacity>
[[gnu::hot]] void capture_stack(StackBuffer<capacity>& stack, std::size_t limit);
extern template void capture_stack(CapturedStack& stack, std::size_t limit);
extern template void capture_stack(ShortStack& stack, std::size_t limit);

}  // namespace memlab::profiler
