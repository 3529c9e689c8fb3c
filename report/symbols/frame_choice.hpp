// Chooses the frame of a stack that represents the call site. A stack begins inside the CUDA
// runtime and ends in _start; the useful line is the first one of the application's own code.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/symbols/frame_skips.hpp"
#include "report/symbols/stack_frame.hpp"

namespace memlab::report {

inline constexpr std::size_t no_frame = static_cast<std::size_t>(-1);

/// Finds out what the frame is to the choice.
void classify(StackFrame& frame, const FrameSkips& skips);

/// The index of the frame to show, leaf first, or no_frame for an empty stack: the first of the
/// best rank (FrameRank). Where --skip names that, the same of its callers that it does not name,
/// unless nothing is left of them but startup code. The choice does not depend on whether the
/// system's debug information is installed. Frames that are not classified yet are, without --skip.
/// The page makes the same choice of frames that its reader skips:
/// report/html/web/src/model/frame_choice.ts.
std::size_t choose_frame(const std::vector<StackFrame>& stack);

/// True for frames of libcuda, libcudart (shared, or linked into the program), CUPTI and memlab.
bool is_cuda_or_memlab(const StackFrame& frame);

/// Where a stack of PyTorch's backward goes on as the forward's, of an operator whose line the
/// chosen frame is.
struct BackwardFrames {
    std::size_t marker = no_frame;  ///< StackFrame::is_forward_marker(); no_frame: no such stack
    std::size_t node = no_frame;    ///< the operator's backward, where it has a name
};
BackwardFrames backward_frames(const std::vector<StackFrame>& stack, std::size_t chosen);

/// Whether the frame is an operator's backward.
bool is_backward_node(const StackFrame& frame);

/// The name of that operator's backward ("AddmmBackward0"), or "backward"; empty: no such stack.
std::string backward_node(const std::vector<StackFrame>& stack, std::size_t chosen);

/// The file name of the library between the chosen frame and CUDA ("libcublas.so.13"), when the
/// call went through a library other than the one of the chosen frame; else empty. From Python code
/// there may be several: then it is the one that called CUDA.
std::string through_library(const std::vector<StackFrame>& stack, std::size_t chosen);

}  // namespace memlab::report
