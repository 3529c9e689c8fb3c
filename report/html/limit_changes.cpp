// Fewer sites that are followed by themselves: what the page may not grow with.
#include <algorithm>
#include <limits>
#include <utility>

#include "report/html/history.hpp"

namespace memlab::report {

namespace {

/// What several holders have together, at every moment.
class Sum {
  public:
    explicit Sum(std::size_t moments) : at_(moments) {}

    void add(const History::Holder& holder) {
        const std::vector<History::Change>& changes = holder.changes;
        for (std::size_t i = 0; i < changes.size(); ++i) {
            const std::size_t end = i + 1 < changes.size() ? changes[i + 1].moment : at_.size();
            for (std::size_t moment = changes[i].moment; moment < end; ++moment) {
                at_[moment].first += changes[i].bytes;
                at_[moment].second += changes[i].blocks;
            }
        }
    }

    History::Holder holder() const {
        constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
        History::Holder holder;
        std::pair<std::uint64_t, std::uint64_t> before{0, 0};
        for (std::size_t moment = 0; moment < at_.size(); ++moment) {
            if (at_[moment] != before) {
                before = at_[moment];
                holder.changes.push_back({static_cast<std::uint32_t>(moment),
                                          static_cast<std::uint32_t>(std::min(before.second, most)),
                                          before.first});
            }
        }
        return holder;
    }

  private:
    std::vector<std::pair<std::uint64_t, std::uint64_t>> at_;  ///< bytes and blocks by moment
};

History::Rest& rest_for(History& history, const model::Site& site,
                        std::optional<std::size_t> category) {
    const auto found =
        std::find_if(history.rest.begin(), history.rest.end(), [&](const History::Rest& rest) {
            return rest.device == site.device && rest.kind == site.kind &&
                   rest.category == category;
        });
    return found != history.rest.end() ? *found
                                       : history.rest.emplace_back(History::Rest{
                                             site.device, site.kind, category, 0, 0, 0, {}});
}

}  // namespace

void limit_changes(History& history, const model::Report& report, const SiteCategories& categories,
                   std::size_t changes) {
    // The sites are in order of their peaks. A small one that changes rarely stays, too.
    std::vector<std::size_t> kept;
    std::vector<std::size_t> summed;
    for (std::size_t i = 0; i < history.sites.size(); ++i) {
        const std::size_t needs = history.holders[i].changes.size();
        (needs <= changes ? kept : summed).push_back(i);
        changes -= needs <= changes ? needs : 0;
    }
    if (summed.empty()) {
        return;
    }
    for (const std::size_t i : summed) {
        const model::Site& site = report.sites[history.sites[i]];
        History::Rest& rest = rest_for(history, site, categories.at(history.sites[i]));
        ++rest.sites;
        rest.allocations += site.count;
        rest.allocated_bytes += site.bytes;
    }
    for (History::Rest& rest : history.rest) {
        Sum sum(history.moments.size());
        sum.add(rest.holder);
        for (const std::size_t i : summed) {
            const model::Site& site = report.sites[history.sites[i]];
            if (site.device == rest.device && site.kind == rest.kind &&
                categories.at(history.sites[i]) == rest.category) {
                sum.add(history.holders[i]);
            }
        }
        rest.holder = sum.holder();
    }
    for (std::size_t i = 0; i < kept.size(); ++i) {
        history.sites[i] = history.sites[kept[i]];
        if (i != kept[i]) {
            history.holders[i] = std::move(history.holders[kept[i]]);
        }
    }
    history.sites.resize(kept.size());
    history.holders.resize(kept.size());
}

}  // namespace memlab::report
