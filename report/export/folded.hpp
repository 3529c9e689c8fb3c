// Exports folded stacks, one per line: "main (a.cpp:3);step (b.cpp:7);cuMemAlloc_v2 4194304". Read
// by flamegraph.pl, inferno, speedscope and many others.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Stacks with weight 0 are omitted. May throw std::bad_alloc.
Result write_folded(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
