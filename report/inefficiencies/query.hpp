// What is looked for, and a finding of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/inefficiencies/finding.hpp"
#include "report/views/site_table.hpp"
#include "report/views/suppressions.hpp"
#include "report/whatif/trials.hpp"

namespace memlab::report {

struct InefficiencyQuery {
    std::optional<std::uint64_t> device;  ///< only this device
    std::vector<Pattern> patterns;        ///< only these; empty: all
    std::string step;  ///< name of the mark or scope that ends a step; empty: the most frequent
    /// Of the pool in a recording; empty: nothing is replayed, and what only a replay bears out is
    /// not said.
    whatif::PoolSettingsOf pool_settings = {};
    bool patterns_of_all_sites = true;  ///< no filter: what is said of a device as a whole, too
    std::vector<std::uint32_t> groups = {};                  ///< by site, for collect_patterns()
    std::vector<bool> taken;                                 ///< by site: whether it is examined
    const std::vector<Suppression>* suppressions = nullptr;  ///< of leaks; null: none
};

bool is_wanted(const InefficiencyQuery& query, Pattern pattern);

/// Of all sites of a row.
Finding make_finding(Pattern pattern, Confidence confidence, const SiteRow& row);

}  // namespace memlab::report
