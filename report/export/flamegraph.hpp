// Exports a flame graph as one self-contained SVG file: the outermost function on top, the call
// into CUDA at the bottom, widths proportional to the chosen weight. In a browser: hover for
// details, click to zoom, Search highlights frames by regular expression and shows their share.
// Without scripts (in a document, in a mail) it is a static picture.
//
// Deterministic: boxes are sorted by name, colours are hashes of the name.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// Boxes narrower than 1/5000 of the whole are omitted; their number is shown below the picture.
/// May throw std::bad_alloc.
Result write_flamegraph(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
