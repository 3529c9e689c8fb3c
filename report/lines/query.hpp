// A query for line tables: the functions and the columns.
//
// Columns are named by what they show:
//   active, reserved, allocated, requested   maximum of the curve when the line allocated: of all
//                                            device memory of the process, so never a default
//   bytes, count                             bytes and number of the line's allocations
//   live                                     bytes of these that were never freed
//   at_peak                                  bytes of these at the device's allocated peak
//   a key of torch.cuda.memory_stats         of the pool: .peak is the maximum of .current when the
//                                            line allocated, others the value at its last
//                                            allocation
// A report alone has bytes, count, live and at_peak: it has sums, not moments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/summary/filter.hpp"
#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

struct LineQuery {
    std::string file;                     ///< path, or the end of one: "model.py"
    std::string function;                 ///< or the end of its name ("forward"); empty: all
    std::optional<int> line;              ///< only functions of which this line allocated
    std::optional<std::uint64_t> device;  ///< none: the one with the highest peak
    std::vector<std::string> columns;     ///< empty: the defaults
    std::uint64_t every = 0;              ///< steps per table; 0: one table for the whole run
    /// Name of the marks or scopes that end a step; empty: all marks, or the program's steps by
    /// scopes when it sets none.
    std::string step;
    Filter filter;
};

/// The source of a column.
struct LineColumn {
    enum class Source : std::uint8_t { curve, sum, statistic };
    enum class Sum : std::uint8_t { bytes, count, live, at_peak };

    std::string name;
    Source source = Source::curve;
    trace::CurveName curve = trace::CurveName::active;
    Sum sum = Sum::bytes;
    std::string statistic;    ///< the key that is read: .current for a .peak
    bool of_moments = false;  ///< needs the event log
    bool of_whole_run = false;
    bool highest = true;  ///< maximum of the moments; else the latest
    bool bytes = true;    ///< else it counts
};

/// The columns of a query. All names must be valid: see check_column().
std::vector<LineColumn> select_columns(const LineQuery& query);

/// Empty for a valid column name, else the error.
std::string check_column(const std::string& name);

/// The value of a key of torch.cuda.memory_stats in `stats`; null for an unknown key.
const std::uint64_t* find_statistic(const trace::MemoryStats& stats, const std::string& key);

}  // namespace memlab::report
