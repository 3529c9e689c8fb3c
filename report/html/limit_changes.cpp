// Fewer sites that are followed by themselves: what the page may not grow with.
#include <algorithm>
#include <limits>
#include <map>
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

std::uint64_t most_of(const History::Holder& holder) {
    std::uint64_t most = 0;
    for (const History::Change& change : holder.changes) {
        most = std::max(most, change.bytes);
    }
    return most;
}

/// The rest, with what else is summed, where nn.Modules are told apart as `modules` says.
class Rests {
  public:
    Rests(const History& history, const std::vector<std::size_t>& modules)
        : history_(history), modules_(modules) {
        for (const History::Rest& rest : history.rest) {
            History::RestKey key = rest.of;
            key.nn_module = module_of(key.nn_module);
            Summed& to = add(std::move(key), rest.holder);
            to.rest.sites += rest.sites;
            to.rest.allocations += rest.allocations;
            to.rest.allocated_bytes += rest.allocated_bytes;
        }
    }

    /// The changes of `holder` are of `of`, a site in the report.
    void add(const History::Followed& of, const model::Site& site,
             std::optional<std::size_t> category, const History::Holder& holder) {
        Summed& to = add({site.device, site.kind, category, module_of(of.nn_module)}, holder);
        if (!of.nn_module) {
            ++to.rest.sites;
            to.rest.allocations += site.count;
            to.rest.allocated_bytes += site.bytes;
        }
    }

    /// `changes`: those of nn.Modules are added to it.
    std::vector<History::Rest> take(std::size_t& changes) {
        std::vector<History::Rest> all;
        for (Summed& each : all_) {
            each.rest.holder = each.sum.holder();
            changes += each.rest.of.nn_module ? each.rest.holder.changes.size() : 0;
            all.push_back(std::move(each.rest));
        }
        return all;
    }

  private:
    struct Summed {
        History::Rest rest;
        Sum sum;
    };
    std::optional<std::size_t> module_of(std::optional<std::size_t> number) const {
        return number ? std::optional(modules_[*number]) : std::nullopt;
    }
    Summed& add(History::RestKey key, const History::Holder& holder) {
        const auto [at, is_new] = numbers_.try_emplace(key, all_.size());
        if (is_new) {
            all_.push_back({{std::move(key), 0, 0, 0, {}}, Sum(history_.moments.size())});
        }
        Summed& to = all_[at->second];
        to.sum.add(holder);
        return to;
    }

    const History& history_;
    const std::vector<std::size_t>& modules_;
    std::vector<Summed> all_;
    std::map<History::RestKey, std::size_t> numbers_;
};

}  // namespace

void limit_changes(History& history, const model::Report& report, const SiteCategories& categories,
                   std::size_t changes) {
    // The largest first. A small one that changes rarely stays, too.
    std::vector<std::pair<std::uint64_t, std::size_t>> order;
    for (std::size_t i = 0; i < history.sites.size(); ++i) {
        order.emplace_back(most_of(history.holders[i]), i);
    }
    std::stable_sort(order.begin(), order.end(),
                     [](const auto& a, const auto& b) { return a.first > b.first; });
    std::vector<bool> stays(order.size());
    std::size_t left = changes;
    for (const auto& [most, i] : order) {
        const std::size_t needs = history.holders[i].changes.size();
        stays[i] = needs <= left;
        left -= stays[i] ? needs : 0;
    }
    const bool all_stay = std::find(stays.begin(), stays.end(), false) == stays.end();
    std::size_t of_modules = 0;
    for (const History::Rest& rest : history.rest) {
        of_modules += rest.of.nn_module ? rest.holder.changes.size() : 0;
    }
    if (all_stay && of_modules <= changes) {
        return;
    }
    const std::size_t deepest = history.nn_modules.deepest();
    std::vector<std::size_t> modules;
    std::vector<History::Rest> rests;
    std::size_t depth = std::min(history.nn_modules.depth, deepest + 1);
    for (;; --depth) {
        modules = history.nn_modules.to_depth(depth);
        Rests summed(history, modules);
        for (std::size_t i = 0; i < stays.size(); ++i) {
            if (!stays[i]) {
                const std::size_t site = history.sites[i].site;
                summed.add(history.sites[i], report.sites[site], categories.at(site),
                           history.holders[i]);
            }
        }
        of_modules = 0;
        rests = summed.take(of_modules);
        if (of_modules <= changes || depth == 0) {
            break;
        }
    }
    history.rest = std::move(rests);
    if (depth <= deepest) {
        history.nn_modules.depth = depth;
    }
    for (std::size_t i = 0; i < stays.size(); ++i) {
        if (auto& of = history.sites[i].nn_module) {
            *of = modules[*of];
        }
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < stays.size(); ++i) {
        if (stays[i]) {
            if (kept != i) {
                history.sites[kept] = history.sites[i];
                history.holders[kept] = std::move(history.holders[i]);
            }
            ++kept;
        }
    }
    history.sites.resize(kept);
    history.holders.resize(kept);
}

}  // namespace memlab::report
