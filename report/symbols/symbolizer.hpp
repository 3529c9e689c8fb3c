// Resolves recorded return addresses to functions, files and lines, offline: without cost for the
// profiled program, and on any machine that has the same binaries.
//
// Guarantee: names and lines come only from the binary that ran. If the build id in the recording
// differs from the file's, the frame is module+offset with the problem "binary changed", never a
// plausible but wrong line.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/report_entries.hpp"

namespace memlab::report {

/// The source locations of an address.
struct ResolvedAddress {
    /// Innermost inlined function first, the containing function last. Empty when unknown.
    std::vector<model::SourceFrame> frames;
    /// Why names are missing: "binary changed", "file not found", ...; or empty.
    std::string problem;
};

/// Thread-safety: none. The first use of a module reads its symbol table.
class Symbolizer {
  public:
    Symbolizer();
    ~Symbolizer();
    Symbolizer(const Symbolizer&) = delete;
    Symbolizer& operator=(const Symbolizer&) = delete;

    /// `return_address` is relative to the module's bias, as the recording stores it; the line is
    /// that of the call before it. `build_id` is lower-case hexadecimal, empty where the module had
    /// none (then the file is not verified). Separate debug files are found by build id,
    /// .gnu_debuglink and beside objects (.dwo); for a download see report/symbols/debuginfod.hpp.
    const ResolvedAddress& resolve(const std::string& path, const std::string& build_id,
                                   std::uint64_t return_address);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::report
