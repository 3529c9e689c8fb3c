// A stretch of a timeline as text, JSON or CSV, and what was live at a moment of it.
#pragma once

#include <string>
#include <vector>

#include "report/symbols/resolver.hpp"
#include "report/timeline/timeline.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// What was live at a moment.
struct MomentView {
    std::uint64_t time_ns = 0;
    std::string name;      ///< as it was asked for: "peak", "300ms", a mark's name
    bool at_peak = false;  ///< the tables' peak figures are of the moment, else their live ones
    const Report* report = nullptr;
    std::vector<SiteTable> tables;  ///< sorted by the figure in question
};

/// The picture and the figures, for people; `moment` may be null. Ends with a newline.
std::string render_timeline_text(const Report& report, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options);

/// {file, source ("event log" or "report"), from_ns, to_ns, devices [index, name, bucket_ns, curves
/// {<curve>: {at_begin, lowest, highest, highest_ns, at_end}}, rows [{begin_ns, <curve>: [min, max,
/// last] or null}]], marks [{time_ns, name}], scopes [{name, thread, depth, begin_ns, end_ns,
/// ended}], ooms [{time_ns, device, requested_bytes, api}], left_out, at (null: not asked for)
/// {time_ns, name, devices [index, bytes, count, sites [{place, kind, api, bytes, count}]]}}.
std::string render_timeline_json(const std::string& file, const TimelineView& view,
                                 const MomentView* moment, const ViewOptions& options);

/// A line of names, then a row for each bucket in which something happened: device, begin_ns,
/// end_ns, and of each curve <curve>_min, _max and _last, empty where it is not known. The values
/// hold until the next row of the device.
std::string render_timeline_csv(const TimelineView& view);

}  // namespace memlab::report
