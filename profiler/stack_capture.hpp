// Captures the calling thread's native stack.
//
// Uses memlab's unwinder (profiler/unwind/walk.hpp), which reads .eh_frame, so needs no frame
// pointers. A build with MEMLAB_VERIFY_UNWIND compares every stack with libgcc's.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler {

/// Fills `stack` with at most `limit` (<= max_depth) return addresses of the calling thread, except
/// memlab's own frames. Takes no lock, allocates nothing; async-signal-safe.
template <std::size_t capacity>
[[gnu::hot]] void capture_stack(StackBuffer<capacity>& stack, std::size_t limit);
extern template void capture_stack(CapturedStack& stack, std::size_t limit);
extern template void capture_stack(ShortStack& stack, std::size_t limit);

/// What makes the allocations of a function that does work for another call: PyTorch's engine runs,
/// on its own thread, what an operator of the forward left to do.
struct CallOrigin {
    std::uintptr_t begin = 0;  ///< of the function's code
    std::uintptr_t bytes = 0;  ///< of the function's code; 0: there is no such function

    /// The id of the stack of the call that the innermost activation of the function on this thread
    /// works for; 0: unknown. Called inside of that activation.
    std::uint32_t (*stack)() noexcept = nullptr;
};

}  // namespace memlab::profiler
