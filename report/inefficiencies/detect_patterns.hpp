// The findings of a recording: each pattern where it costs enough to be worth a change.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/inefficiencies/collect_patterns.hpp"
#include "report/inefficiencies/finding.hpp"
#include "report/views/suppressions.hpp"

namespace memlab::report {

struct InefficiencyQuery {
    std::optional<std::uint64_t> device;  ///< only this device
    std::vector<Pattern> patterns;        ///< only these; empty: all
    std::string step;  ///< name of the mark or scope that ends a step; empty: the most frequent
    std::vector<bool> taken;                                 ///< by site: whether it is examined
    const std::vector<Suppression>* suppressions = nullptr;  ///< of leaks; null: none
};

/// The findings of each device that the query wants, the largest saving first. `steps`: null if
/// there are none. `log` is read once more if it has more allocations than `patterns` could keep.
std::vector<DeviceFindings> detect_patterns(const model::Report& report, Resolver& resolver,
                                            const InefficiencyQuery& query,
                                            const CollectedPatterns& patterns,
                                            const model::Steps* steps, const std::string& log);

}  // namespace memlab::report
