#include "report/timeline/kind_timeline.hpp"

#include <algorithm>

#include "model/bounded_sum.hpp"

namespace memlab::report {

void KindRange::sample_each(const trace::DeviceTotals& device, std::uint64_t from_ns,
                            std::uint64_t now_ns) {
    for (const auto& [kind, curve] : device.kind_curves) {
        if (!curve) {
            continue;
        }
        const std::uint64_t value = curve->curve().current;
        const auto [at, is_new] = sampled_.try_emplace(kind);
        CurveFigures& figures = at->second.figures;
        if (is_new) {
            // What appears within the range held nothing when it starts.
            const std::uint64_t before = now_ns == from_ns ? value : 0;
            figures = {before, before, value, now_ns, value};
        } else if (value == figures.at_end) {
            continue;
        }
        figures.lowest = std::min(figures.lowest, value);
        if (value > figures.highest) {
            figures.highest = value;
            figures.highest_ns = now_ns;
        }
        figures.at_end = value;
        at->second.timeline.record(now_ns, {value});
    }
}

std::vector<KindTimeline> KindRange::timelines() const {
    std::vector<KindTimeline> all;
    for (const auto& [kind, sampled] : sampled_) {
        const trace::TimelineOf<1>& timeline = sampled.timeline;
        KindTimeline& out = all.emplace_back();
        out.kind = trace::name_of(kind);
        out.bucket_ns = timeline.bucket_ns();
        out.figures = sampled.figures;
        for (std::size_t i = 0; i < timeline.buckets().size(); ++i) {
            const auto& bucket = timeline.buckets()[i];
            if (bucket.used) {
                out.rows.push_back({timeline.start_ns() + i * out.bucket_ns, bucket.min[0],
                                    bucket.max[0], bucket.last[0]});
            }
        }
    }
    return all;
}

std::vector<KindTimeline> kind_timelines(const model::Device& device, std::uint64_t from_ns,
                                         std::uint64_t to_ns) {
    std::vector<KindTimeline> all;
    if (!device.kind_curves) {
        return all;
    }
    for (const auto& [kind, of_kind] : *device.kind_curves) {
        KindTimeline& out = all.emplace_back();
        out.kind = kind;
        out.bucket_ns = of_kind.bucket_ns;
        std::uint64_t before = 0;
        for (const model::KindCurve::Row& row : of_kind.rows) {
            if (model::saturating_add(row.begin_ns, of_kind.bucket_ns) <= from_ns) {
                before = row.last;
            } else if (row.begin_ns <= to_ns) {
                out.rows.push_back(row);
                out.rows.back().begin_ns = std::max(row.begin_ns, from_ns);
            }
        }
        CurveFigures& figures = out.figures;
        figures = {before, before, before, from_ns, before};
        for (const model::KindCurve::Row& row : out.rows) {
            figures.lowest = std::min(figures.lowest, row.min);
            if (row.max > figures.highest) {
                figures.highest = row.max;
                figures.highest_ns = row.begin_ns;
            }
            figures.at_end = row.last;
        }
        if (of_kind.curve.peak_time_ns >= from_ns && of_kind.curve.peak_time_ns <= to_ns &&
            of_kind.curve.peak_bytes >= figures.highest) {
            figures.highest = of_kind.curve.peak_bytes;
            figures.highest_ns = of_kind.curve.peak_time_ns;
        }
    }
    return all;
}

}  // namespace memlab::report
