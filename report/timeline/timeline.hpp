// A stretch of a recording: its curves, marks, scopes and failures, as fine as its source has them.
//
// From an event log the stretch is read anew, so that the narrower it is, the finer it gets: up to
// 1024 buckets of time, each with lowest, highest and last values (trace/aggregate/timeline.hpp),
// which for a stretch of a millisecond are single events. Highest values and their times are exact
// always. From a report there is what it keeps: buckets of its whole duration, no scopes.
//
// What was live at a moment follows from a log exactly, for any moment: it is added up to there.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/model.hpp"

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

/// A scope of a thread or a range of the process, cut to nothing: it may begin before the stretch
/// and end after it.
struct TimelineScope {
    std::string name;
    std::uint64_t begin_ns = 0;
    std::uint64_t end_ns = 0;  ///< of the recording, where it never ended
    std::uint64_t thread = 0;
    std::size_t depth = 0;  ///< open scopes around it, of its thread and domain
    bool ended = true;
};

struct DeviceTimeline {
    /// Within the stretch.
    struct Curve {
        std::uint64_t at_begin = 0;
        std::uint64_t lowest = 0;
        std::uint64_t highest = 0;
        std::uint64_t highest_ns = 0;  ///< first time; from a report, its bucket's begin
        std::uint64_t at_end = 0;
    };
    const Device* device = nullptr;
    std::uint64_t bucket_ns = 0;
    std::vector<TimelineRow> rows;  ///< in order of time; the first holds the values at the begin
    std::array<std::optional<Curve>, curve_count> curves;
};

struct TimelineView {
    static constexpr std::size_t max_notes = 4096;

    std::uint64_t from_ns = 0;
    std::uint64_t to_ns = 0;
    bool from_log = false;
    std::vector<DeviceTimeline> devices;  ///< that were used
    std::vector<TimelineMark> marks;      ///< max_notes of each at most
    std::vector<TimelineOom> ooms;
    std::vector<TimelineScope> scopes;  ///< by begin
    std::uint64_t left_out = 0;         ///< marks, failures and scopes beyond max_notes
};

/// A moment as it is given: "1.5s", "200ms", "3us", "17ns" since the start, "peak" (of the first
/// GPU that was used, or of `device`), "end", or the name of a mark (its first). Nothing, and
/// `problem`, for anything else.
std::optional<std::uint64_t> parse_moment(std::string_view text, const Report& report,
                                          std::optional<std::uint64_t> device,
                                          std::string* problem);

/// From the event log `log`, or, where that is empty, from the report alone. `report` is the log's
/// own; the result points into it. May throw std::bad_alloc.
TimelineView read_timeline(const Report& report, const std::string& log, std::uint64_t from_ns,
                           std::uint64_t to_ns, std::optional<std::uint64_t> device);

/// The report of an event log as it was at `time_ns`: its "live" is what was live then. Nothing
/// where it cannot be read. May throw std::bad_alloc.
std::optional<Report> report_at(const std::string& log, std::uint64_t time_ns);

}  // namespace memlab::report
