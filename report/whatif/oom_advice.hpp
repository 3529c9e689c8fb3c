// What would have served an allocation that failed, each found by a replay of the program up to it:
// other settings, a higher limit, a GPU without the other processes on it. What no replay shows is
// not advised.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/summary/summary.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::report::whatif {

/// Whole sentences, most useful first; empty: nothing that was tried serves it; none: a replay with
/// the recorded settings does not fail as the recording did, and so tells nothing. `recording`:
/// after prefer_allocators(). May throw std::bad_alloc.
std::optional<std::vector<std::string>> advise_on_oom(const Recording& recording,
                                                      const model::Report& report,
                                                      const model::Oom& oom,
                                                      const ReadPoolSettings& read_pool);

/// Sets the advice of the first of each kind of failures that are alike, of four kinds at most.
/// `log`: the event log of the summary's report; without one there is none. May throw
/// std::bad_alloc.
void advise_on_ooms(const std::string& log, const PoolSettingsOf& settings, Summary& summary);

}  // namespace memlab::report::whatif
