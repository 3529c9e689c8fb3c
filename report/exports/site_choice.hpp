// Selects the events of a log by a filter of call sites. The filter is evaluated on the report's
// sites; an event belongs to the site with its device, kind, function and stack, and to the
// nn.Module whose call allocated.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "report/exports/input.hpp"
#include "report/nn_module_parts.hpp"

namespace memlab::report::exports {

/// Thread-safety: none.
class SiteChoice {
  public:
    explicit SiteChoice(const Input& input);

    /// `api` is the name of event.api. Cheap: true without a filter, else a cached look-up.
    bool takes(const trace::Event& event, const std::string& api);

  private:
    using Site = std::array<std::uint64_t, 3>;  ///< stack and API, device, kind

    const Input& input_;
    NnModuleEntries entries_;
    std::vector<bool> nn_modules_;  ///< by index into Report::nn_modules; empty: all, and none
    std::unordered_set<std::string> taken_;
    std::map<Site, bool> known_;
};

}  // namespace memlab::report::exports
