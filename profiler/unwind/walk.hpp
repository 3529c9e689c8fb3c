// The unwinder: walks the calling thread's native stack by .eh_frame.
//
// memlab has its own because a stack is captured at every allocation, and existing unwinders are
// too slow for that: libgcc's and libunwind's decode each frame's tables again or restore all its
// registers (12.9 and 1.45 us for 40 frames), and both take the loader's or their own locks. Here a
// frame costs one table lookup (rules.hpp) and two reads of the stack.
//
// The fast walk tracks only rsp, rbp and the return address, which nearly all frames can do with.
// If a frame needs another register (assembly with its stack pointer in rbx, say), the walk is
// repeated with all registers, slowly.
//
// The walk ends at a frame marked as outermost, as libgcc's does, at a return address that is not
// in executable memory, and at unreadable stack memory (stack_memory.hpp). In code without tables
// (JIT, assembly) it continues if the instructions or the frame pointer lead to another call
// (frame_step.hpp); else that frame is the last. Signal frames are followed onto other stacks. The
// walk takes no lock, allocates nothing and is reentrant in signal handlers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/captured_stack.hpp"
#include "profiler/unwind/rules.hpp"

namespace memlab::profiler::unwind {

/// Fills `stack` with at most `limit` (<= max_depth) return addresses, from the caller's frame
/// outwards; leading ones in `excluded` are skipped. Async-signal-safe.
template <std::size_t capacity>
[[gnu::hot]] void walk_stack(StackBuffer<capacity>& stack, std::size_t limit, Bytes excluded);
extern template void walk_stack(CapturedStack& stack, std::size_t limit, Bytes excluded);
extern template void walk_stack(ShortStack& stack, std::size_t limit, Bytes excluded);

/// The rule of a frame with that return address: the cached one, or a new one, which is cached.
/// Call while no object is being unloaded. Async-signal-safe.
Rule rule_of_frame(std::uintptr_t return_address);

/// The context that a signal handler interrupted: the next instruction, and rax, which holds the
/// number or the result of a system call.
struct Interrupted {
    std::uintptr_t instruction;
    std::uintptr_t rax;
};

/// The context that the calling thread's innermost signal handler interrupted. False outside of
/// handlers, or if the walk does not reach it. Async-signal-safe.
bool find_interrupted(Interrupted* found);

}  // namespace memlab::profiler::unwind
