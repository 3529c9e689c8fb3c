// Chooses the frame of a stack that represents the call site. A stack begins inside the CUDA
// runtime and ends in _start; the useful line is the first one of the application's own code.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace memlab::report {

/// A resolved frame of a stack; inlined functions are separate frames.
struct StackFrame {
    std::string function;  ///< demangled declaration; empty when unknown
    std::string file;      ///< empty when unknown
    int line = 0;
    int first_line = 0;         ///< of the function; 0: unknown
    std::string module;         ///< path of the binary; empty when unknown
    std::uint64_t address = 0;  ///< return address, relative to the module
    bool inlined = false;
    std::string problem;  ///< why function and line are unknown
    bool python = false;  ///< a Python function, without module and address
};

inline constexpr std::size_t no_frame = static_cast<std::size_t>(-1);

/// True for PyTorch's own layers between an operator and its memory (allocators, empty tensors,
/// dispatch) and for the Python interpreter: every allocation passes through them.
bool is_framework_plumbing(const StackFrame& frame);

/// The index of the frame to show, leaf first, or no_frame for an empty stack. In this order:
///  1. the first frame with file and line outside CUDA, memlab, the system's headers and libraries
///     and installed Python packages (Python code and binaries);
///  2. the first frame outside CUDA, memlab and the system's libraries with file and line;
///  3. the first frame outside CUDA and memlab with a function that is no framework plumbing;
///  4. the first frame outside CUDA and memlab with a function;
///  5. the first frame outside CUDA and memlab;
///  6. the leaf.
/// The choice does not depend on whether the system's debug information is installed. Startup code
/// (libc, the loader, language runtimes) is chosen only before the leaf.
std::size_t choose_frame(const std::vector<StackFrame>& stack);

/// True for frames of libcuda, libcudart (shared, or linked into the program), CUPTI and memlab.
bool is_cuda_or_memlab(const StackFrame& frame);

/// The file name of the library between the chosen frame and CUDA ("libcublas.so.13"), when the
/// call went through a library other than the one of the chosen frame; else empty. From Python code
/// there may be several: then it is the one that called CUDA.
std::string through_library(const std::vector<StackFrame>& stack, std::size_t chosen);

}  // namespace memlab::report
