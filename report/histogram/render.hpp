// Renders histograms of allocations as text and as JSON.
#pragma once

#include <string>

#include "report/histogram/histogram.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct HistogramTextOptions {
    Style style;
    bool sizes = true;
    bool lifetimes = true;
    std::string filter;  ///< Filter::text(), for the heading; empty: none
};

/// A table of each kind for each device, with bars of the counts; ends with a newline.
std::string render_histograms_text(const Histograms& found, const HistogramTextOptions& options);

/// {file, filter (null: none), gap_end_ns (null: none), devices [index, name, total, sizes [from,
/// below, count, bytes], size_unknown, lifetimes [the same], held, end_unknown]}: total and the
/// last three are {count, bytes}; sizes are bytes, lifetimes nanoseconds; below is null where it is
/// 2^64. Members of what is not shown are left out.
std::string render_histograms_json(const std::string& file, const Histograms& found,
                                   const HistogramTextOptions& options);

}  // namespace memlab::report
