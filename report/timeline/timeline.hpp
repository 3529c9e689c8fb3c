// The curves, marks, scopes and failures in a time range of a recording, at the resolution of its
// source.
//
// An event log is read again for the range, so that a narrower range has a finer resolution: up to
// 1024 buckets, each with minimum, maximum and last value (trace/aggregate/timeline.hpp); in a
// range of a millisecond these are single events. Maxima and their times are exact. A report only
// has the buckets of its whole duration, and no scopes; they stand in where a log lacks events
// (report_rows.hpp), and are no more than bounds where they reach beyond the range.
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

class RangeCollector;

/// Collects the timeline of a range while a log is aggregated into its report. Thread-safety: none.
class TimelineCollector {
  public:
    static constexpr std::uint64_t end = ~std::uint64_t{0};

    /// By default of the whole recording.
    explicit TimelineCollector(std::uint64_t from_ns = 0, std::uint64_t to_ns = end);
    ~TimelineCollector();

    /// For read_report(), and for logs that are followed.
    LogSinkFactory sink_factory();
    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    /// As of when it was last finished.
    const RangeCollector& range() const { return *range_; }
    /// Whether that range of `log`, the recording of `report`, was collected.
    bool has(const std::string& log, const model::Report& report, std::uint64_t from_ns,
             std::uint64_t to_ns) const;

  private:
    std::uint64_t from_ns_;
    std::uint64_t to_ns_;
    std::string log_;
    std::unique_ptr<RangeCollector> collecting_;
    std::unique_ptr<RangeCollector> range_;
};

/// Reads a time range from the event log `log`, or from the report only if `log` is empty. `report`
/// is the report of the log; the result points into it. `collected`, if there is one, is used if
/// it is of this range. May throw std::bad_alloc.
TimelineView read_timeline(const model::Report& report, const std::string& log,
                           std::uint64_t from_ns, std::uint64_t to_ns,
                           std::optional<std::uint64_t> device,
                           const TimelineCollector* collected = nullptr);

/// Adds the categories of each device that has any, from the event log. May throw std::bad_alloc.
void add_categories(TimelineView& view, const model::Report& report, const std::string& log,
                    Resolver& resolver);

}  // namespace memlab::report
