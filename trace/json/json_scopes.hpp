// The part of the report that is about what the program says of itself: scopes, steps, names of
// memory (docs/scopes.md). Each member is written only where there is something in it.
#pragma once

#include "trace/aggregate/aggregator.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::report {

/// Writes the members `scopes`, `unbalanced_scopes`, `steps`, `labels` and `largest_live` into the
/// object that is open. May throw std::bad_alloc.
void write_scopes(JsonOutput& json, const trace::Aggregator& from);

}  // namespace memlab::report
