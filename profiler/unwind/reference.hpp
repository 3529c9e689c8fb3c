// A reference stack walk by libgcc, compared with memlab's: in tests, and at every capture in a
// build with MEMLAB_VERIFY_UNWIND.
#pragma once

#include <cstddef>

#include "profiler/unwind/bytes.hpp"
#include "profiler/unwind/captured_stack.hpp"

namespace memlab::profiler::unwind {

/// walk_stack() by means of _Unwind_Backtrace.
void walk_stack_as_libgcc(CapturedStack& stack, std::size_t limit, Bytes excluded);

/// Whether two walks agree. Tolerated: only libgcc knows the CFA of the outermost frame; where
/// tables are missing libgcc stops and memlab's walk may continue; libgcc may report a last frame
/// that is not in code.
bool are_equal(const StackView& walked, const StackView& by_libgcc);

/// Walks again with libgcc; on a difference prints both stacks and aborts. The common caller's
/// frame must be in `excluded`.
void verify_walk(const StackView& stack, std::size_t limit, Bytes excluded);

/// The stacks that verify_walk() found equal, and their frames in total.
struct VerifiedWalks {
    unsigned long stacks;
    unsigned long frames;
};
VerifiedWalks verified_walks();

}  // namespace memlab::profiler::unwind
