// Exports the file format of https://www.speedscope.app
// (https://www.speedscope.app/file-format-schema.json): one sampled profile in bytes (no unit for
// counts), one sample per call stack.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Stacks with weight 0 are omitted. May throw std::bad_alloc.
Result write_speedscope(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
