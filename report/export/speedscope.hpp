// https://www.speedscope.app's own file format
// (https://www.speedscope.app/file-format-schema.json): one sampled profile, its unit bytes (none
// for counts), a sample for each call stack.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Stacks that weigh nothing are left out. May throw std::bad_alloc.
Result write_speedscope(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
