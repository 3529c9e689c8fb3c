// Folded stacks, a line each: "main (a.cpp:3);step (b.cpp:7);cuMemAlloc_v2 4194304". What
// flamegraph.pl, inferno, speedscope and many others read.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Stacks that weigh nothing are left out. May throw std::bad_alloc.
Result write_folded(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
