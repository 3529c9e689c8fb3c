// What is asked of line tables: whose lines, and which columns they have.
//
// Columns are named by what they show:
//   active, reserved, allocated, requested   the most there was of that curve (of all device memory
//                                            of the process) when the line allocated
//   bytes, count                             what the line allocated in all, and how often
//   live                                     of that, what was never given back
//   at_peak                                  of that, what was held at the device's allocated peak
//   a key of torch.cuda.memory_stats         of the pool: with .peak the most of .current when the
//                                            line allocated, else its value when it last did
// A report alone has the second and third kind, and at_peak: it has sums, not moments.
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
    std::optional<std::uint64_t> device;  ///< none: the one that held most
    std::vector<std::string> columns;     ///< empty: the usual ones
    std::uint64_t every = 0;              ///< steps of a table; 0: one table of the whole run
    std::string mark;                     ///< name of the marks that end a step; empty: all
    Filter filter;
};

/// What a column takes its values from.
struct LineColumn {
    enum class Source : std::uint8_t { curve, sum, statistic };
    enum class Sum : std::uint8_t { bytes, count, live, at_peak };

    std::string name;
    Source source = Source::curve;
    trace::CurveName curve = trace::CurveName::active;
    Sum sum = Sum::bytes;
    std::string statistic;    ///< the key that is followed: of a peak, the current value
    bool of_moments = false;  ///< only the event log has it
    bool of_whole_run = false;
    bool highest = true;  ///< of the moments; else the latest
    bool bytes = true;    ///< else it counts
};

/// The columns that are asked for; without `log`, the event log, the usual ones are others. Every
/// name is a column's: check_column().
std::vector<LineColumn> columns_of(const LineQuery& query, bool log);

/// Empty when there is such a column, else what is wrong with it.
std::string check_column(const std::string& name);

/// The place of a key of torch.cuda.memory_stats in `stats`; null when there is none of that name.
const std::uint64_t* find_statistic(const trace::MemoryStats& stats, const std::string& key);

}  // namespace memlab::report
