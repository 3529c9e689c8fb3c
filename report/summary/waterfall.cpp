#include "report/summary/waterfall.hpp"

#include <algorithm>
#include <limits>

#include "model/bounded_sum.hpp"

namespace memlab::report {

std::optional<Waterfall> make_waterfall(const model::Report& report, const model::Device& device) {
    const auto& rows = device.timeline.rows;
    const model::CurveSummary& peak = device.curve(model::Curve::allocated);
    const auto after =
        std::upper_bound(rows.begin(), rows.end(), peak.peak_time_ns,
                         [](std::uint64_t time, const auto& row) { return time < row.begin_ns; });
    if (peak.peak_bytes == 0 || after == rows.begin()) {
        return std::nullopt;
    }
    const model::TimelineRow& row = *(after - 1);
    const auto max_in = [](const model::TimelineRow& in, model::Curve curve) {
        const auto& values = in.curves.at(static_cast<std::size_t>(curve));
        return values ? values->max : 0;
    };
    Waterfall fall;
    fall.time_ns = peak.peak_time_ns;
    fall.within_ns = device.timeline.bucket_ns;
    fall.is_exact = device.curves_at_peak.has_value();
    const model::CurvesAtPeak at_peak = device.curves_at_peak.value_or(
        model::CurvesAtPeak{.reserved = max_in(row, model::Curve::reserved),
                            .active = max_in(row, model::Curve::active),
                            .requested = max_in(row, model::Curve::requested)});
    // Enforce the order of the levels, since the figures of a file are not trusted.
    fall.allocated = peak.peak_bytes;
    fall.requested = std::min(at_peak.requested, fall.allocated);
    fall.active = std::max(at_peak.active, fall.allocated);
    fall.reserved = std::max(at_peak.reserved, fall.active);
    // The sample that follows a growth may be in the next bucket.
    std::uint64_t used = max_in(row, model::Curve::device_used);
    if (after != rows.end()) {
        used = std::max(used, max_in(*after, model::Curve::device_used));
    }
    // Where the last sample is older than the peak, what was reserved since is not in it.
    if (device.ledger && device.ledger->latest.used != 0 &&
        device.ledger->latest.time_ns < fall.time_ns) {
        const model::LedgerMoment& last = device.ledger->latest;
        used = model::saturating_add(last.used,
                                     fall.reserved - std::min(fall.reserved, last.reserved));
    }
    if (used >= fall.reserved) {
        fall.device_used = used;
    }
    for (const model::Site& site : report.sites) {
        if (site.device == device.index && site.kind != "device" &&
            model::is_in_curves(site.kind) && site.at_peak_bytes != 0) {
            std::uint64_t& sum = fall.outside_pool[site.kind];
            if (__builtin_add_overflow(sum, site.at_peak_bytes, &sum)) {
                sum = std::numeric_limits<std::uint64_t>::max();
            }
        }
    }
    return fall;
}

}  // namespace memlab::report
