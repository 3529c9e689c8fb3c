// The sections of the summary for memory that the curves of a GPU do not include: managed memory,
// pinned host memory, other processes' memory.
#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/lacks.hpp"
#include "report/summary/summary_page.hpp"
#include "report/text/plot.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

void SummaryPage::kind_sections(const DeviceSummary& summary) {
    for (const KindSummary& kind : summary.kinds) {
        if (is_worth_telling(*summary.device, kind.curve->curve.peak_bytes)) {
            kind_section(*summary.device, kind);
        }
    }
}

void SummaryPage::kind_section(const model::Device& device, const KindSummary& summary) {
    const model::CurveSummary& curve = summary.curve->curve;
    heading(clean(kind_label(device, summary.kind)),
            summary.kind == "managed"  ? "counted separately: it migrates between GPU and host"
            : summary.kind == "pinned" ? "counted separately: it is not on the GPU"
                                       : "counted separately: another process owns it");
    Table<model::CurveSummary> table(*this);
    table.bytes("peak", &model::CurveSummary::peak_bytes)
        .bold()
        .duration("at", &model::CurveSummary::peak_time_ns)
        .bytes(moment_column(*summary_.report), &model::CurveSummary::at_end_bytes);
    table.head();
    table.row(curve);
    if (is_outside_curves_only(device)) {
        std::vector<PlotPoint> points;
        for (const model::KindCurve::Row& row : summary.curve->rows) {
            points.push_back({row.begin_ns, row.max, row.max});
            std::uint64_t end = 0;
            if (!__builtin_add_overflow(row.begin_ns, summary.curve->bucket_ns, &end)) {
                points.push_back({end, row.last, row.last});
            }
        }
        plot(points, "  " + cyan(style().ascii ? "#" : "█") + " " + kind_label(summary.kind),
             device.index);
    }
    holders("Who holds it at its peak", summary.at_peak, options_.top,
            format_plural(summary.at_peak.count, "allocation"));
}

void SummaryPage::kinds(const model::Device& device) {
    const bool one_kind = device.kinds.empty() ||
                          (device.kinds.size() == 1 &&
                           device.kinds.contains(device.is_gpu() ? "device" : "suballocation"));
    if (one_kind) {
        return;
    }
    heading("Kinds of memory");
    using Kind = std::pair<std::string, model::KindTotals>;
    const auto figure = [](std::uint64_t model::KindTotals::*which) {
        return [which](const Kind& kind) { return kind.second.*which; };
    };
    Table<Kind> table(*this);
    table.left("", 11, [this](const Kind& kind) { return clean(kind.first); })
        .count("count", 10, figure(&model::KindTotals::count))
        .bytes("total bytes", 14, figure(&model::KindTotals::bytes))
        .bytes("peak", figure(&model::KindTotals::peak_bytes))
        .bytes(moment_column(*summary_.report), figure(&model::KindTotals::live_bytes))
        .last("");
    table.head();
    for (const Kind& each : device.kinds) {
        const std::string& kind = each.first;
        const char* note = kind == "managed"      ? "not in the curves: it migrates"
                           : kind == "pinned"     ? "host memory, not in the curves"
                           : kind == "ipc_import" ? "another process holds it"
                                                  : "";
        const char* place = kind == "managed" ? "migrates" : kind == "pinned" ? "host" : "imported";
        const bool outside = !model::is_in_curves(kind);
        table.row(each, outside ? dim(width() >= 92 ? note : place) : "");
    }
}

/// How often its memory was away, how long and how much of it.
void SummaryPage::absences(const model::Device& device) {
    if (device.absences.empty()) {
        return;
    }
    std::uint64_t away_ns = 0;
    std::uint64_t most = 0;
    for (const model::Absence& each : device.absences) {
        const std::uint64_t end = each.end_ns.value_or(summary_.report->process.duration_ns);
        away_ns = model::saturating_add(away_ns, end - std::min(end, each.begin_ns));
        most = std::max(most, each.bytes);
    }
    paragraph("  ",
              "Its memory was away from the GPU (memlab-ctl yield) " +
                  format_plural(device.absences.size(), "time") + ", for " +
                  format_duration(away_ns) + " in all, " + format_bytes(most) +
                  " at most; reserved is without it then.",
              2);
}

}  // namespace memlab::report
