// Where an event happened: its call stack, one line per frame, and its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/summary/place_text.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// "  > Step::forward  train.cpp:42": the call into CUDA first; ">" marks the frame that is the
/// stack's place in tables. Printable. Template arguments are left out where a function's name is
/// long with them, except PlaceTextOptions::templates.
std::vector<std::string> stack_lines(const model::Report& report, Resolver& resolver,
                                     std::size_t stack, const PlaceTextOptions& options);

/// The reason why the outer frames of a truncated stack are missing.
std::string missing_frames(const model::Report& report, std::size_t stack);

/// "thread 5976 (pt_autograd_0)"; "thread 5975 (main)" for the initial thread of the process,
/// unless the program named it; "thread 5977" without a name. Not passed through printable().
std::string thread_text(const model::Report& report, std::uint64_t thread);

}  // namespace memlab::report
