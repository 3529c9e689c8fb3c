// The walk as libgcc does it, for comparison: in tests, and at every capture of a build with
// MEMLAB_VERIFY_UNWIND.
#pragma once

#include <cstddef>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler::unwind {

/// As walk_stack(), by _Unwind_Backtrace.
void walk_stack_as_libgcc(CapturedStack& stack, std::size_t limit, Bytes left_out);

/// Whether two walks gave the same. Of a frame without a caller only libgcc says where it ends.
/// Where there are no tables libgcc's ends, and ours may go on; a last one that is no code is no
/// frame to ours.
bool are_equal(const StackView& walked, const StackView& by_libgcc);

/// Walks again as libgcc does. On any difference prints both stacks and aborts. The frame that both
/// were called from has to be among those left out.
void verify_walk(const StackView& stack, std::size_t limit, Bytes left_out);

/// How many stacks verify_walk() found equal, and how many frames they had.
struct VerifiedWalks {
    unsigned long stacks;
    unsigned long frames;
};
VerifiedWalks verified_walks();

}  // namespace memlab::profiler::unwind
