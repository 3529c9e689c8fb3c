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
