// A trace for https://ui.perfetto.dev and chrome://tracing: Chrome's JSON format.
//
//   counters (ph C)        the curves of each GPU, a step for each change
//   async slices (b, e)    allocations from the call that made them to their free, by place; scopes
//                          and ranges of the process. Never ph X: allocations do not nest.
//   instants (i)           marks, and allocations that failed
//
// From a report alone: the curves as its timeline has them, marks and failures; a slice needs the
// events of a log. Times are microseconds since the process started, with nanoseconds behind the
// point.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// May throw std::bad_alloc.
Result write_perfetto(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
