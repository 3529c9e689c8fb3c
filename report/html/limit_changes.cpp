// Fewer sites that are followed by themselves: what the page may not grow with.
#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "report/html/history.hpp"

namespace memlab::report {

namespace {

/// What several holders have together: its size is that of their changes, not that of the moments.
class Sum {
  public:
    void add(const History::Holder& holder) {
        History::Change before;
        for (const History::Change& change : holder.changes) {
            steps_.push_back({change.moment, change.bytes - before.bytes,
                              std::uint64_t{change.blocks} - before.blocks});
            before = change;
        }
    }

    History::Holder holder() {
        constexpr std::uint64_t most = std::numeric_limits<std::uint32_t>::max();
        std::stable_sort(steps_.begin(), steps_.end(),
                         [](const Step& a, const Step& b) { return a.moment < b.moment; });
        History::Holder holder;
        std::pair<std::uint64_t, std::uint64_t> now{0, 0};
        for (std::size_t i = 0; i < steps_.size();) {
            const std::uint32_t moment = steps_[i].moment;
            const std::pair<std::uint64_t, std::uint64_t> before = now;
            for (; i < steps_.size() && steps_[i].moment == moment; ++i) {
                now.first += steps_[i].bytes;
                now.second += steps_[i].blocks;
            }
            if (now != before) {
                holder.changes.push_back(
                    {moment, static_cast<std::uint32_t>(std::min(now.second, most)), now.first});
            }
        }
        return holder;
    }

  private:
    /// What is added at a moment, modulo 2^64: less than before is much.
    struct Step {
        std::uint32_t moment;
        std::uint64_t bytes;
        std::uint64_t blocks;
    };
    std::vector<Step> steps_;
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
    Rests(const History& history, const std::vector<std::size_t>& modules) : modules_(modules) {
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
            all_.push_back({{std::move(key), 0, 0, 0, {}}, {}});
        }
        Summed& to = all_[at->second];
        to.sum.add(holder);
        return to;
    }

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
    const auto fits = [&](std::size_t depth) {
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
        return of_modules <= changes;
    };
    // The deepest that fits, or 0. By halves: a name may have any number of components.
    std::size_t depth = std::min(history.nn_modules.depth, deepest + 1);
    if (!fits(depth)) {
        std::size_t too_deep = std::exchange(depth, 0);
        while (too_deep - depth > 1) {
            const std::size_t between = depth + (too_deep - depth) / 2;
            (fits(between) ? depth : too_deep) = between;
        }
        fits(depth);
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
