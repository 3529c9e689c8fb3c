// Which frames are passed over when the frame that stands for a call site is chosen: those that
// --skip names, and the allocators and containers of the built-in table.
//
//   TEXT         the function's name, the source file's path, or the binary's file name
//   func=TEXT, file=TEXT, module=TEXT   one of them
//
// TEXT is as in --filter. Of a C++ function its own name counts, not its parameters and template
// arguments: a function that is given a DeviceBuffer is no part of DeviceBuffer. A TEXT with ( or <
// is looked for in the whole declaration.
#pragma once

#include <string>
#include <vector>

#include "report/symbols/stack_frame.hpp"

namespace memlab::report {

class FrameSkips {
  public:
    /// Adds the pattern of one --skip. Returns an error message of one line; empty on success.
    std::string add(const std::string& given);

    /// The built-in table is not used.
    void leave_defaults_out() { defaults_ = false; }

    bool defaults() const { return defaults_; }

    /// True if any option changed it.
    bool given() const { return !defaults_ || !patterns_.empty(); }

    /// True if --skip names the frame.
    bool skips(const StackFrame& frame) const;

  private:
    enum class Key { any, function, file, module };
    struct Pattern {
        Key key;
        std::string text;
    };
    std::vector<Pattern> patterns_;
    bool defaults_ = true;
};

}  // namespace memlab::report
