// A resolved frame of a stack, and its rank in the choice of a site's frame (frame_choice.hpp). The
// rank does not depend on the stack, so it is computed once per frame.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "model/python_source.hpp"

namespace memlab::report {

/// How well a frame stands for a call site, the best first.
enum class FrameRank : std::uint8_t {
    unclassified,
    own_line,            ///< a line of the program's own code
    library_line,        ///< a line of the system's headers or an installed Python package
    allocator_line,      ///< a line of an allocator or container (allocator_frames.hpp)
    operation,           ///< of PyTorch, by the name that users know: it has no line
    function,            ///< a function without a line
    allocator_function,  ///< the same of an allocator or container
    nameless,
    allocator_nameless,  ///< in a binary that is nothing but plumbing
    startup,             ///< libc, the loader, language runtimes
    cuda,                ///< CUDA or memlab
};

/// A number of which 0 and less stand for unknown.
template <typename Number>
std::optional<std::uint64_t> if_known(Number number) {
    return number > 0 ? std::optional(static_cast<std::uint64_t>(number)) : std::nullopt;
}

/// Inlined functions are separate frames.
struct StackFrame {
    std::string function;  ///< demangled declaration; empty when unknown
    std::string file;      ///< empty when unknown
    int line = 0;
    int first_line = 0;         ///< of the function; 0: unknown
    std::string module;         ///< path of the binary; empty when unknown
    std::uint64_t address = 0;  ///< return address, relative to the module
    bool inlined = false;
    std::string problem;                       ///< why function and line are unknown
    bool python = false;                       ///< a Python function, without module and address
    FrameRank rank = FrameRank::unclassified;  ///< set by classify()
    bool skipped = false;                      ///< by --skip; set by classify()

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        name_fields(self, visit);
        visit.flag({"inlined", "into the frame after it"}, self.inlined);
        visit.flag({"python", "a Python function"}, self.python);
        visit.text_or_null({"problem", "why function and line are unknown"}, self.problem);
    }
    template <typename Self, typename Visitor>
    static void name_fields(Self& self, Visitor& visit) {
        visit.text_or_null({"function", "with its parameters; null where it is unknown"},
                           self.function);
        visit.text_or_null({"file", "of the source; null where it is unknown"}, self.file);
        visit.number_or_null({"line", "in that file; null where it is unknown"},
                             if_known(self.line));
        visit.text_or_null({"module", "path of the binary; null of a Python function"},
                           self.module);
        visit.number({"address", "the return address in the binary"}, self.address);
    }

    /// No call: in a stack of PyTorch's backward the Python frames of the forward follow, whose
    /// operator the frames before serve.
    bool is_forward_marker() const { return python && model::is_forward_marker(function, file); }

    /// True for frames that say nothing of who took the memory: allocators, containers,
    /// interpreters, and what --skip names. False before classify().
    bool is_plumbing() const {
        return skipped || rank == FrameRank::allocator_line ||
               rank == FrameRank::allocator_function || rank == FrameRank::allocator_nameless;
    }
};

}  // namespace memlab::report
