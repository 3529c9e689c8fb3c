// The allocated peak that would remain without avoidable memory.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/inefficiencies/collect_patterns.hpp"

namespace memlab::report {

/// Input and result of an estimate: the spans of `reason` of some sites of one device.
struct PeakEstimate {
    std::uint64_t device = 0;  ///< Device::index
    AvoidableSpan::Reason reason = AvoidableSpan::Reason::replaced;
    std::vector<std::size_t> sites;
    std::uint64_t peak_bytes = 0;  ///< result: the remaining allocated peak
};

/// Computes the remaining peak of each of `findings` alone: the maximum of allocated(t) -
/// avoidable(t). A site may be in only one finding of each `reason`. Reads `log` again if it has
/// more allocations than CollectedPatterns::allocated can hold: which spans are avoidable shows at
/// their end, after the curve has passed them.
void estimate_peaks(const std::string& log, const CollectedPatterns& patterns,
                    std::vector<PeakEstimate>& findings);

}  // namespace memlab::report
