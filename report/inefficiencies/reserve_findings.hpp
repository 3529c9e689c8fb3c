// What a recording, and replays of it, say of a pool's reserved memory: blocks that kept it from
// reusing what it had, and settings that reserve less.
#pragma once

#include <vector>

#include "report/inefficiencies/collect_patterns.hpp"
#include "report/inefficiencies/query.hpp"
#include "report/inefficiencies/replays.hpp"
#include "report/summary/summary.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// `moment`: the pool of `found`'s device just before its reserved peak. May throw std::bad_alloc.
void find_in_reserve(const model::Report& report, const InefficiencyQuery& query,
                     const Growth& moment, const std::vector<SiteRow>& rows, Replays& replays,
                     DeviceFindings* found);

/// Finds the settings that mend the summary's unused reserves. Reads `log` only where there are
/// some; empty: nothing is tried. May throw std::bad_alloc.
void try_settings_on_reserve(const std::string& log, const whatif::PoolSettingsOf& settings,
                             Summary& summary);

}  // namespace memlab::report
