// The curves, marks, scopes and failures in a time range of a recording, at the resolution of its
// source.
//
// An event log is read again for the range, so that a narrower range has a finer resolution: up to
// 1024 buckets, each with minimum, maximum and last value (trace/aggregate/timeline.hpp); in a
// range of a millisecond these are single events. Maxima and their times are always exact. A report
// only has the buckets of its whole duration, and no scopes.
//
// The live memory at any time can be derived from a log, by aggregating it up to that time.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"
#include "report/reading/reader.hpp"
#include "report/timeline/categories.hpp"
#include "report/timeline/scope_tracker.hpp"

namespace memlab::report {

struct TimelineMark {
    std::uint64_t time_ns = 0;
    std::string name;
};

struct TimelineOom {
    std::uint64_t time_ns = 0;
    std::uint64_t device = 0;
    std::uint64_t requested_bytes = 0;
    std::string api;
};

struct DeviceTimeline {
    /// Values within the time range.
    struct Curve {
        std::uint64_t at_begin = 0;
        std::uint64_t lowest = 0;
        std::uint64_t highest = 0;
        std::uint64_t highest_ns = 0;  ///< the first time; of a report, the start of the bucket
        std::uint64_t at_end = 0;
    };
    const model::Device* device = nullptr;
    std::uint64_t bucket_ns = 0;
    std::vector<model::TimelineRow>
        rows;  ///< in order of time; the first has the values at from_ns
    std::array<std::optional<Curve>, model::curve_count> curves;
    std::optional<CategoryTimeline> categories;  ///< if they are asked for and there are any
};

struct TimelineView {
    static constexpr std::size_t max_notes = 4096;

    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    bool from_log = false;
    bool by_category = false;
    std::vector<DeviceTimeline> devices;  ///< used devices only
    std::vector<TimelineMark> marks;      ///< at most max_notes, as `ooms` and `scopes`
    std::vector<TimelineOom> ooms;
    /// By begin. Not clipped: one may begin before the time range and end after it.
    std::vector<TimelineScope> scopes;
    std::uint64_t left_out = 0;  ///< marks, failures and scopes beyond max_notes
    /// A sentence on what of the time range the event log lacks; empty: nothing.
    std::string stretch;
};

/// Parses a time: "1.5s", "200ms", "3us", "17ns" since the start, "peak" (of `device`, else of the
/// first used GPU), "end", or the name of a mark (the first one). None for other text, with an
/// error message in `problem`.
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

}  // namespace memlab::report
