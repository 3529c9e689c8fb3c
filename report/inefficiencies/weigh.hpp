// The second pass over an event log: what the allocated peak would have been without some of what
// was held.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/inefficiencies/watch.hpp"

namespace memlab::report {

/// A finding in the making: the spans of life of `why` of some sites of one device.
struct Weighed {
    std::uint64_t device = 0;  ///< Device::index
    Avoidable::Why why = Avoidable::Why::replaced;
    std::vector<std::size_t> sites;
    std::uint64_t peak_bytes = 0;  ///< filled in: the allocated peak that is left
};

/// Reads `log` once more and fills in what each of `findings` alone would have left of the peak:
/// the highest value of allocated(t) - avoidable(t). A site is in one finding of each `why` at
/// most.
void weigh(const std::string& log, const std::vector<Avoidable>& avoidable,
           std::vector<Weighed>& findings);

}  // namespace memlab::report
