#include "report/inefficiencies/rank_findings.hpp"

#include <algorithm>
#include <limits>

namespace memlab::report {

namespace {

/// Goes before all others.
bool is_growing(const Finding& finding) {
    return finding.pattern == Pattern::leak && finding.confidence == Confidence::certain;
}

std::uint64_t saved_bytes(const Finding& finding) {
    const Saving& saving = finding.saving;
    return is_growing(finding)
               ? std::numeric_limits<std::uint64_t>::max()
               : std::max({saving.peak_bytes, saving.reserved_bytes, saving.end_bytes});
}

}  // namespace

std::uint64_t least_bytes(const model::Report& report, const model::Device& device) {
    std::uint64_t peak = 0;
    for (const model::Device& each : report.devices) {
        if (each.gpu() != device.gpu()) {
            continue;
        }
        // Not of the whole GPU: contexts and other processes are in that.
        peak = std::max({peak, each.curve(model::Curve::allocated).peak_bytes,
                         each.curve(model::Curve::reserved).peak_bytes});
        for (const auto& [kind, totals] : each.kinds) {
            peak = std::max(peak, totals.peak_bytes);
        }
    }
    return std::max<std::uint64_t>(1, peak / min_part);
}

bool is_worth_it(std::uint64_t least, const Finding& finding) {
    const Saving& saving = finding.saving;
    return std::max({saving.peak_bytes, saving.reserved_bytes, saving.end_bytes}) >= least;
}

void sort_findings(DeviceFindings* found) {
    std::stable_sort(
        found->findings.begin(), found->findings.end(),
        [](const Finding& a, const Finding& b) { return saved_bytes(a) > saved_bytes(b); });
    std::stable_sort(
        found->calls.begin(), found->calls.end(),
        [](const Finding& a, const Finding& b) { return a.saving.calls > b.saving.calls; });
}

}  // namespace memlab::report
