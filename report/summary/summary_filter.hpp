// The summary's tables of places, narrowed to the call sites that --filter takes, or in another
// order.
#pragma once

#include <vector>

#include "report/summary/summary.hpp"

namespace memlab::report {

/// Leaves in the tables of who held memory (at the peak, at the end, at a failed allocation) what
/// the sites of `taken` held; their totals, and so all shares, stay those of everything. Sites that
/// the report only sums up are left out: nobody knows what they match.
void filter_summary(Summary& summary, const std::vector<bool>& taken);

/// Puts those tables in the order of their allocations, most first.
void order_by_count(Summary& summary);

}  // namespace memlab::report
