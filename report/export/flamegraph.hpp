// A flame graph as one SVG file that needs nothing else: the outermost function on top, the call
// into CUDA at the bottom, the width of a box what it weighs. In a browser: hovering says what a
// box is, a click shows it alone, Search marks what matches a regular expression and says its
// share. Without scripts (in a document, in a mail) it is still the whole picture.
//
// Equal input gives equal bytes: boxes are in order of their names, colours come from the names.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Boxes narrower than 1/5000 of the whole are left out, and counted below the picture. May throw
/// std::bad_alloc.
Result write_flamegraph(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
