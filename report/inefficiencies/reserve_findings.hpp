// What a recording, and replays of it, say of a pool's reserved memory: blocks that kept it from
// reusing what it had, and settings that reserve less.
#pragma once

#include <vector>

#include "report/inefficiencies/collect_patterns.hpp"
#include "report/inefficiencies/query.hpp"
#include "report/inefficiencies/replays.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// `moment`: the pool of `found`'s device just before its reserved peak. May throw std::bad_alloc.
void find_in_reserve(const InefficiencyQuery& query, const Growth& moment,
                     const std::vector<SiteRow>& rows, Replays& replays, DeviceFindings* found);

}  // namespace memlab::report
