// The part of the report from the program's annotations: scopes, steps and labels (docs/scopes.md).
// Empty members are omitted.
#pragma once

#include "trace/aggregate/aggregator.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::report {

/// Writes the members `scopes`, `unbalanced_scopes`, `steps`, `labels` and `largest_live` into the
/// open object. May throw std::bad_alloc.
void write_scopes(JsonOutput& json, const trace::Aggregator& from);

}  // namespace memlab::report
