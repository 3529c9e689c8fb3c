// Curves of a stretch whose single events a log lacks, from the rows of the report: its sums go on
// through the gap. A row is a bucket of time, so where one reaches beyond what is shown its
// extremes are bounds.
#pragma once

#include <cstdint>
#include <string>

#include "report/timeline/timeline_view.hpp"

namespace memlab::report {

/// Takes the rows of the device's report within the time range, and its curves; the first row has
/// the values at its start.
void read_report_rows(DeviceTimeline& device, const TimelineView& view);
/// What stands on a timeline where memory left a GPU (`away`: how much), or was back (0).
std::string moved_text(std::uint64_t device, std::uint64_t away);

/// The report's marks and failures in the time range, and when memory left a GPU and was back.
void read_report_marks(const model::Report& report, TimelineView& view);

/// Adds what the report of `device` has between `from_ns` and `to_ns`, both exclusive, to its rows
/// and curves. `view`: the time range.
void add_report_rows(DeviceTimeline& device, const TimelineView& view, std::uint64_t from_ns,
                     std::uint64_t to_ns);

/// Adds the report's marks and failures of that stretch. They stay in order of time.
void add_report_notes(TimelineView& view, const model::Report& report, std::uint64_t from_ns,
                      std::uint64_t to_ns);

/// Where the highest value of a curve is the peak that the report knows exactly, its exact time.
void use_exact_peaks(DeviceTimeline& device, const TimelineView& view);

}  // namespace memlab::report
