// A whole call stack, a line for each frame.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/model.hpp"
#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

/// "  > Step::forward  train.cpp:42": the call into CUDA first, the frame that stands for the stack
/// marked with ">". Printable.
std::vector<std::string> stack_lines(const Report& report, Resolver& resolver, std::size_t stack,
                                     const Style& style, const std::string& working_directory);

/// Why the outer frames of a truncated stack are not there.
std::string missing_frames(const Report& report, std::size_t stack);

}  // namespace memlab::report
