// Text, JSON and CSV output of a part of a timeline, and of the live memory at a time in it.
#pragma once

#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/timeline/timeline.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// The live memory at a time.
struct MomentView {
    std::uint64_t time_ns = 0;
    std::string name;      ///< as given by the user: "peak", "300ms", a mark's name
    bool at_peak = false;  ///< use the peak figures of the tables, else their live figures
    const model::Report* report = nullptr;
    std::vector<SiteTable> tables;  ///< sorted by that figure
};

/// What of a table was live at the moment: that of the device's curves, which comes first, or of a
/// kind that these do not include.
struct LiveMemory {
    struct Row {
        const SiteRow* row;
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };
    std::string kind = {};  ///< empty: that of the curves
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::vector<Row> rows = {};  ///< most bytes first
};
/// The first may have no rows; of the kinds there are those that have.
std::vector<LiveMemory> live_memory(const SiteTable& table, const MomentView& moment);
/// "Live at the peak, 1.23 s: 4.00 GiB"; not passed through printable().
std::string live_heading(const SiteTable& table, const MomentView& moment,
                         const LiveMemory& memory);

/// Plot and figures as text; `moment` may be null. Ends with a newline.
std::string render_timeline_text(const model::Report& report, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options);

/// {file, source ("event log" or "report"), from_ns, to_ns, devices [index, name, bucket_ns, curves
/// {<curve>: {at_begin, lowest, highest, highest_ns, at_end}}, rows [{begin_ns, <curve>: [min, max,
/// last] or null}], kind_curves (of memory that the curves do not include, if there is any)
/// {<kind>: {bucket_ns, at_begin, lowest, highest, highest_ns, at_end, rows [{begin_ns, bytes:
/// [min, max, last]}]}}, by_category (only if asked for; null: the device has no categories)
/// {bucket_ns, highest_ns, categories {<category>: {at_begin, at_highest, highest, highest_ns,
/// at_end}}, rows
/// [{begin_ns, at_ns, bytes {<category>}, last {<category>}}]}], marks [{time_ns, name}], scopes
/// [{name, thread, depth, begin_ns, end_ns, ended}], ooms [{time_ns, device, requested_bytes,
/// api}], left_out, stretch (a sentence; only if the log lacks events), at (null: not requested)
/// {time_ns, name, devices [index, bytes, count, sites [{place, kind, api, bytes, count}], kinds
/// (as kind_curves) {<kind>: {bytes, count, sites}}]}}.
std::string render_timeline_json(const std::string& file, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options);

/// A header line, then a row for each bucket with an event: device, begin_ns, end_ns, and for each
/// curve <curve>_min, _max and _last, empty if unknown. The last values hold until the next row of
/// the device. `memory`, the last column, is empty, or a kind that the curves do not include: then
/// the row is that kind's, in the columns of `allocated`.
std::string render_timeline_csv(const TimelineView& view);

/// The same of the devices that have categories: device, begin_ns, end_ns, at_ns (when the
/// allocated curve was highest in that time), allocated and each category then, and the same with
/// _last at the end. Allocated is the sum of the categories.
std::string render_categories_csv(const TimelineView& view);

}  // namespace memlab::report
