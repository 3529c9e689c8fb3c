// Walks the calling thread's native stack by the rules of .eh_frame.
//
// memlab has an unwinder of its own because a stack is captured at every allocation, and none that
// exists is made for that: libgcc's and libunwind's look each frame up anew or restore every
// register of it (12.9 and 1.45 us for 40 frames), and both meet the loader's or their own locks.
// Here a frame costs one look at a word (rules.hpp) and two reads of the stack.
//
// Only rsp, rbp and the return address are carried along: hardly any other register is ever needed,
// and none is saved by every frame. A frame that does need another (assembly that keeps its stack
// pointer in rbx, say) has the walk done again, slowly, with all of them.
//
// The walk ends at a frame that says it has no caller, as libgcc's does. Any word may lie where a
// return address should: what is no address, or leads into nothing that is executed, is no frame
// and ends the walk, as does memory that cannot be read (stack_memory.hpp). Through code without
// tables (a JIT's, assembly) it goes on where the code itself or the frame pointer leads to another
// call (frame_step.hpp); else that frame is the last. It goes through signal frames onto other
// stacks. It takes no lock and no memory and may be interrupted by a signal handler that does the
// same.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler::unwind {

/// Fills `stack` with the return addresses of the caller's frame and those above it, at most
/// `limit` (<= max_depth), less the first ones that lie in `left_out`. Async-signal-safe.
template <std::size_t room>
[[gnu::hot]] void walk_stack(StackRoom<room>& stack, std::size_t limit, Bytes left_out);
extern template void walk_stack(CapturedStack& stack, std::size_t limit, Bytes left_out);
extern template void walk_stack(ShortStack& stack, std::size_t limit, Bytes left_out);

/// What a signal handler interrupted: what would run next, and the register that says which system
/// call it was, or its outcome.
struct Interrupted {
    std::uintptr_t instruction;
    std::uintptr_t rax;
};

/// Of the innermost handler that the calling thread is in. False when it is in none, or nothing
/// leads there. Async-signal-safe.
bool find_interrupted(Interrupted* found);

}  // namespace memlab::profiler::unwind
