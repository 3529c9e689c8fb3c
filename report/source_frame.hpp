// A function and source line, as found by the symbolizer or stored in a report.
#pragma once

#include <string>

namespace memlab::report {

/// Empty members are unknown.
struct SourceFrame {
    std::string function;  ///< demangled, with its parameters
    std::string file;      ///< absolute if the debug information says so
    int line = 0;
    bool inlined = false;  ///< inlined into the function of the next frame
};

}  // namespace memlab::report
