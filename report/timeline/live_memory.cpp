// What of a table of call sites was live at a moment, by the curves and by the kinds beside them.
#include <algorithm>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/summary/summary.hpp"
#include "report/text/units.hpp"
#include "report/timeline/render.hpp"

namespace memlab::report {

namespace {

LiveMemory::Row figures_at(const SiteRow& row, const MomentView& moment) {
    LiveMemory::Row out{&row, 0, 0};
    if (!moment.at_peak) {
        out.count = row.stats.live_count;
        out.bytes = row.stats.live_bytes;
        return out;
    }
    // Of all kinds: the sites have what each held at the device's allocated peak.
    for (const std::size_t site : row.sites) {
        model::add_to(out.count, moment.report->sites.at(site).at_peak_count);
        model::add_to(out.bytes, moment.report->sites.at(site).at_peak_bytes);
    }
    return out;
}

}  // namespace

std::vector<LiveMemory> live_memory(const SiteTable& table, const MomentView& moment) {
    std::vector<LiveMemory> all(1);
    for (const SiteRow& row : table.rows) {
        const LiveMemory::Row figures = figures_at(row, moment);
        if (figures.count == 0) {
            continue;
        }
        const std::string kind = model::is_in_curves(row.kind) ? "" : row.kind;
        auto at = std::find_if(all.begin(), all.end(),
                               [&kind](const LiveMemory& each) { return each.kind == kind; });
        if (at == all.end()) {
            at = all.insert(at, LiveMemory{.kind = kind});
        }
        model::add_to(at->count, figures.count);
        model::add_to(at->bytes, figures.bytes);
        at->rows.push_back(figures);
    }
    for (LiveMemory& each : all) {
        std::stable_sort(each.rows.begin(), each.rows.end(),
                         [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    }
    return all;
}

std::string live_heading(const SiteTable& table, const MomentView& moment,
                         const LiveMemory& memory) {
    const bool at_end = moment.name == "end";
    const bool at_peak = moment.name == "peak";
    std::string heading = "Live " + (at_end    ? moment_text(*moment.report)
                                     : at_peak ? "at the peak"
                                               : "at " + moment.name);
    if ((at_end || at_peak) && memory.kind.empty()) {
        heading += ", " + format_duration(moment.time_ns);
    }
    if (moment.tables.size() > 1) {
        heading += ", " + device_label(*table.device);
    }
    if (!memory.kind.empty()) {
        heading += ", " + kind_label(memory.kind);
    }
    return heading + ": " + format_bytes(memory.bytes);
}

}  // namespace memlab::report
