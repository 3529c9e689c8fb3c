// Turns recorded return addresses into functions, files and lines, after the fact and outside the
// profiled process: the program pays nothing for it, and a report can be symbolized on any machine
// that has the same binaries.
//
// Guarantees: a name or line is shown only when it comes from the very binary that ran. The build
// id in the recording is compared with the file's; where they differ the frame reads
// "binary changed" and module+offset, never a plausible but wrong line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "report/source_frame.hpp"

namespace memlab::report {

/// Where an address lies.
struct ResolvedAddress {
    /// Innermost inlined function first; the last one is the function that the code belongs to.
    /// Empty when nothing is known.
    std::vector<SourceFrame> frames;
    /// Why there is no more: "binary changed", "file not found", ...; empty when all is well.
    std::string problem;
};

/// Thread-safety: none. Slow on first use of a module (its symbol table is read), quick afterwards.
class Symbolizer {
  public:
    Symbolizer();
    ~Symbolizer();
    Symbolizer(const Symbolizer&) = delete;
    Symbolizer& operator=(const Symbolizer&) = delete;

    /// `return_address` is relative to the module's bias, as the recording stores it; the line is
    /// that of the call before it. `build_id` is lower-case hexadecimal, empty where the module had
    /// none (then the file is taken as it is). Separate debug files are found by build id,
    /// .gnu_debuglink and beside objects (.dwo); for a download see report/symbols/debuginfod.hpp.
    const ResolvedAddress& resolve(const std::string& path, const std::string& build_id,
                                   std::uint64_t return_address);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

/// `mangled` as a C++ declaration, or itself when it is no C++ name.
std::string demangle(const char* mangled);

}  // namespace memlab::report
