// Exports a trace for https://ui.perfetto.dev and chrome://tracing, in Chrome's JSON format.
//
//   counters (ph C)        the curves of each GPU, one event per change
//   async slices (b, e)    allocations from call to free, named after their place; scopes and
//   ranges
//                          of the process. Not ph X: allocations do not nest.
//   instants (i)           marks, and allocations that failed
//
// From a report alone: the curves of its timeline, marks and failures; slices need the events of a
// log. Times are microseconds since the process started, with three decimals.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// May throw std::bad_alloc.
Result write_perfetto(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
