// A function and line of the source: what the symbolizer finds, and what a report may carry.
#pragma once

#include <string>

namespace memlab::report {

/// Empty members are unknown.
struct SourceFrame {
    std::string function;  ///< demangled, with its parameters
    std::string file;      ///< absolute where the debug information says so
    int line = 0;
    bool inlined = false;  ///< its code lies within the next frame's function
};

}  // namespace memlab::report
