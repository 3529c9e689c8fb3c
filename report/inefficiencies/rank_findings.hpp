// Which findings are worth a change, and their order.
#pragma once

#include <cstdint>

#include "report/inefficiencies/finding.hpp"

namespace memlab::report {

/// What counts: 1/100 of the peak, or of all calls.
inline constexpr std::uint64_t min_part = 100;

/// `least`: least_bytes() of the device.
bool is_worth_it(std::uint64_t least, const Finding& finding);

/// The largest saving first; what grows before all others.
void sort_findings(DeviceFindings* found);

}  // namespace memlab::report
