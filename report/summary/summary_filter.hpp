// Filters and sorts the tables of places of a summary.
#pragma once

#include <vector>

#include "report/summary/summary.hpp"

namespace memlab::report {

/// Reduces the tables of holders (at the peak, at the end, at a failed allocation) to the sites of
/// `taken`. Totals, and so all shares, still refer to all sites. Sites that the report only sums up
/// are left out, since they cannot be matched.
void filter_summary(Summary& summary, const std::vector<bool>& taken);

/// Sorts these tables by the number of allocations, largest first.
void order_by_count(Summary& summary);

}  // namespace memlab::report
