// The findings of a recording: each pattern where it costs enough to be worth a change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/inefficiencies/collect_patterns.hpp"
#include "report/inefficiencies/query.hpp"

namespace memlab::report {

/// The findings of each device that the query wants, the largest saving first. `steps`: null if
/// there are none. `log` is read once more if it has more allocations than `patterns` could keep.
std::vector<DeviceFindings> detect_patterns(const model::Report& report, Resolver& resolver,
                                            const InefficiencyQuery& query,
                                            const CollectedPatterns& patterns,
                                            const model::Steps* steps, const std::string& log);

/// Whether what is held at the end of the recording was so at the program's: where it stopped
/// before, that may have been freed later.
bool has_ended(const model::Report& report);

}  // namespace memlab::report
