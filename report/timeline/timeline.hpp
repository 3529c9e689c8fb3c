// The curves, marks, scopes and failures in a time range of a recording, at the resolution of its
// source.
//
// An event log is read again for the range, so that a narrower range has a finer resolution: up to
// 1024 buckets, each with minimum, maximum and last value (trace/aggregate/timeline.hpp); in a
// range of a millisecond these are single events. Maxima and their times are exact. A report only
// has the buckets of its whole duration, and no scopes; they stand in where a log lacks events
// (report_rows.hpp), and are no more than bounds where they reach beyond the range.
//
// The live memory at any time can be derived from a log, by aggregating it up to that time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "model/report.hpp"
#include "report/reading/reader.hpp"
#include "report/timeline/timeline_view.hpp"

namespace memlab::report {

/// Parses a time: "1.5s", "200ms", "3us", "17ns" since the start, "peak" (of `device`, else of the
/// first used GPU, or of the greatest kind that its curves do not include), "end", or the name of a
/// mark (the first one). None for other text, with an error message in `problem`.
std::optional<std::uint64_t> parse_moment(std::string_view text, const model::Report& report,
                                          std::optional<std::uint64_t> device,
                                          std::string* problem);

class RangeCollector;

/// Collects the timeline of the whole recording while its log is aggregated into a report.
/// Thread-safety: none.
class TimelineCollector {
  public:
    TimelineCollector();
    ~TimelineCollector();

    /// For read_report().
    LogSinkFactory sink_factory();
    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    const RangeCollector& range() const { return *range_; }

  private:
    std::string log_;
    std::unique_ptr<RangeCollector> range_;
};

/// Reads a time range from the event log `log`, or from the report only if `log` is empty. `report`
/// is the report of the log; the result points into it. `collected`, if there is one, is used for
/// the whole recording if it is of this log. May throw std::bad_alloc.
TimelineView read_timeline(const model::Report& report, const std::string& log,
                           std::uint64_t from_ns, std::uint64_t to_ns,
                           std::optional<std::uint64_t> device,
                           const TimelineCollector* collected = nullptr);

/// Adds the categories of each device that has any, from the event log. May throw std::bad_alloc.
void add_categories(TimelineView& view, const model::Report& report, const std::string& log,
                    Resolver& resolver);

/// The report derived from an event log up to `time_ns`: its "live" is the live memory at that
/// time. None if the log cannot be read, or lacks the events before that time. `named`: the report
/// of the whole log, whose names (memlab-report symbolize) no log has. May throw std::bad_alloc.
std::optional<model::Report> report_at(const std::string& log, std::uint64_t time_ns,
                                       const model::Report& named);
/// Why it is none for `moment` ("400ms"): "what; what to do".
std::string not_replayable(const model::Report& report, const std::string& moment);

}  // namespace memlab::report
