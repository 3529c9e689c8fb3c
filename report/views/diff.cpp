#include "report/views/diff.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_allocations.hpp"
#include "report/device_label.hpp"
#include "report/levels.hpp"
#include "report/nn_module_parts.hpp"
#include "report/summary/ledger.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/units.hpp"
#include "report/views/call_chains.hpp"
#include "report/views/device_pairs.hpp"

namespace memlab::report {

namespace {

/// The key by which calls of both sides are matched; see the top of diff.hpp.
std::string make_key(const Place& place) {
    std::string key = place.function;
    key += '\0';
    key += base_name(place.file.empty() ? place.module : place.file);
    key += '\0';
    if (place.function.empty() && place.file.empty()) {
        key += std::to_string(place.address);
    }
    key += '\n';
    return key;
}

const model::Device* find_device(const model::Report& report, std::uint64_t index) {
    const auto found = std::find_if(
        report.devices.begin(), report.devices.end(),
        [&](const model::Device& device) { return device.index == index && device.used(); });
    return found == report.devices.end() ? nullptr : &*found;
}

/// Sums the call sites of any number of reports, then computes the changes.
class SiteSums {
  public:
    explicit SiteSums(const DiffOptions& options) : options_(options) {}

    /// `calls` must use the side's resolver. `has(device)`: whether its sites count.
    template <typename Has>
    void add(const DiffSide& side, CallChains& calls, const Has& has,
             SiteStats SiteDiff::*figures) {
        for (std::size_t i = 0; i < side.report.sites.size(); ++i) {
            const model::Site& site = side.report.sites[i];
            if (!has(site.device) || !side.taken.at(i)) {
                continue;
            }
            if (options_.by == SitesBy::nn_module) {
                add_to_nn_module(nn_module_of(side.report, site), site, figures);
                continue;
            }
            const std::vector<Place>& chain = calls.chain(site.stack);
            std::string key = site.kind + '\n';
            if (options_.by_place) {
                key += make_key(side.resolver.place(site.stack));
                // Backward's memory is at a line of the forward, but not the forward's: its chain
                // begins with the operator.
                key += make_key(chain.front());
            }
            for (std::size_t c = 0; !options_.by_place && c < chain.size(); ++c) {
                key += make_key(chain[c]);
            }
            const auto [entry, is_new] = known_.try_emplace(std::move(key), sites_.size());
            if (is_new) {
                sites_.emplace_back();
                shown_.emplace_back();
            }
            SiteDiff& diff = sites_[entry->second];
            const SiteStats stats = stats_of(site);
            (diff.*figures).add(stats);
            // Calls of several lines of a function are one: the line of the largest is shown.
            Shown& shown = shown_[entry->second];
            const std::uint64_t value = sort_value(stats, options_.order);
            if (is_new || value > (shown.side == figures ? shown.value : 0)) {
                shown = {figures, value};
                diff.place = side.resolver.place(site.stack);
                diff.calls.assign(chain.begin() + 1,
                                  options_.by_place ? chain.begin() + 1 : chain.end());
                diff.kind = site.kind;
                diff.api = site.api;
            }
        }
    }

    void add_to_nn_module(const std::string& name, const model::Site& site,
                          SiteStats SiteDiff::*figures) {
        const auto [entry, is_new] = known_.try_emplace(name, sites_.size());
        if (is_new) {
            sites_.emplace_back().nn_module = name;
            shown_.emplace_back();
        }
        (sites_[entry->second].*figures).add(stats_of(site));
    }

    SiteStats stats_of(const model::Site& site) const {
        SiteStats stats = site_stats(site);
        stats.held_only = options_.by_parts;
        return stats;
    }

    SiteChanges take() {
        SiteChanges out;
        for (SiteDiff& site : sites_) {
            out.before.add(site.before);
            out.after.add(site.after);
            if (size(site) == 0) {
                ++out.unchanged;
            } else {
                out.sites.push_back(std::move(site));
            }
        }
        std::stable_sort(out.sites.begin(), out.sites.end(),
                         [this](const auto& a, const auto& b) { return size(a) > size(b); });
        return out;
    }

  private:
    /// Of the call site whose place stands for a row: of the later side, if that has any.
    struct Shown {
        SiteStats SiteDiff::*side = nullptr;
        std::uint64_t value = 0;
    };

    std::uint64_t size(const SiteDiff& site) const {
        return Change{sort_value(site.before, options_.order),
                      sort_value(site.after, options_.order)}
            .size();
    }

    const DiffOptions& options_;
    std::map<std::string, std::size_t> known_;  ///< by key: index into sites_
    std::vector<SiteDiff> sites_;
    std::vector<Shown> shown_;  ///< of each of sites_
};

class DeviceDiffer {
  public:
    DeviceDiffer(const DiffSide& before, const DiffSide& after, const DevicePairs& pairs,
                 const DiffOptions& options)
        : before_(before),
          after_(after),
          pairs_(pairs),
          options_(options),
          calls_before_(before.resolver, false),
          calls_after_(after.resolver, false) {}

    DeviceDiff diff(std::uint64_t index) {
        SiteSums sums(options_);
        const std::uint64_t index_before = pairs_.in_before(index);
        sums.add(
            before_, calls_before_,
            [index_before](std::uint64_t device) { return device == index_before; },
            &SiteDiff::before);
        sums.add(
            after_, calls_after_, [index](std::uint64_t device) { return device == index; },
            &SiteDiff::after);
        DeviceDiff out{sums.take(), index, {}, {}, {}, {}};
        const model::Device* before = find_device(before_.report, index_before);
        const model::Device* after = find_device(after_.report, index);
        out.label = device_label(after != nullptr ? *after : *before);
        if (index_before != index) {
            out.index_before = index_before;
            out.label = device_label(*before) + ", then " + out.label;
        }
        if (before != nullptr && after != nullptr && before->name != after->name) {
            out.name = before->name + ", then " + after->name;
        } else {
            out.name = (after != nullptr ? after : before)->name;
        }
        add_totals(out, before, after);
        return out;
    }

  private:
    void add_totals(DeviceDiff& out, const model::Device* before, const model::Device* after) {
        static const model::Device none;
        const model::Device& a = before != nullptr ? *before : none;
        const model::Device& b = after != nullptr ? *after : none;
        const auto peak = [&](model::Curve curve) {
            return Change{a.curve(curve).peak_bytes, b.curve(curve).peak_bytes};
        };
        out.totals = {
            {"allocated", "allocated_peak_bytes", "peak", true, peak(model::Curve::allocated)},
            {"reserved", "reserved_peak_bytes", "peak", true, peak(model::Curve::reserved)},
            {"still held",
             "allocated_at_end_bytes",
             "at the end",
             true,
             {a.curve(model::Curve::allocated).at_end_bytes,
              b.curve(model::Curve::allocated).at_end_bytes}},
            {"allocations",
             "allocations",
             "of all kinds",
             false,
             {allocation_count(a, Counted::all_kinds), allocation_count(b, Counted::all_kinds)}},
        };
        add_ledger(out, a, b);
        if (a.is_gpu() && b.is_gpu()) {  // an allocator does not tell what was asked for
            out.totals.insert(out.totals.begin() + 2, {"requested", "requested_peak_bytes", "peak",
                                                       true, peak(model::Curve::requested)});
        }
    }

    /// What the ledgers of both have beside the allocations.
    void add_ledger(DeviceDiff& out, const model::Device& a, const model::Device& b) {
        const auto before = ledger_page(a, before_.resolver, LedgerAt::peak);
        const auto after = ledger_page(b, after_.resolver, LedgerAt::peak);
        if (!before || !after) {
            return;
        }
        struct Row {
            const char* kind;
            const char* name;
            const char* member;
        };
        static constexpr std::array<Row, 9> rows = {
            {{"context", "contexts", "contexts_bytes"},
             {"module", "modules", "modules_bytes"},
             {"kernel", "kernels", "kernels_bytes"},
             {"launch", "first launches", "first_launches_bytes"},
             {"growth", "growth", "growth_bytes"},
             {"limit", "limits", "limits_bytes"},
             {"graph", "graphs", "graphs_bytes"},
             {"stream", "streams", "streams_bytes"},
             {"event", "events", "events_bytes"}}};
        for (const Row& row : rows) {
            const Change change{before->bytes_of(row.kind), after->bytes_of(row.kind)};
            if (change.before != 0 || change.after != 0) {
                out.totals.push_back({row.name, row.member, "in the ledger", true, change});
            }
        }
        out.totals.push_back(
            {"the rest", "rest_bytes", "not explained", true, {before->rest, after->rest}});
    }

    const DiffSide& before_;
    const DiffSide& after_;
    const DevicePairs& pairs_;
    const DiffOptions& options_;
    CallChains calls_before_;
    CallChains calls_after_;
};

/// True if modules of the same name have the same build id on both sides.
bool same_builds(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after) {
    std::map<std::string, std::string> ids;
    for (const DiffSide& side : before) {
        for (const model::Module& module : side.report.modules) {
            ids.emplace(base_name(module.path), module.build_id);
        }
    }
    return std::all_of(after.begin(), after.end(), [&](const DiffSide& side) {
        const std::vector<model::Module>& modules = side.report.modules;
        return std::all_of(modules.begin(), modules.end(), [&](const model::Module& module) {
            const auto found = ids.find(base_name(module.path));
            return found == ids.end() || found->second == module.build_id;
        });
    });
}

bool has_unnamed(const SiteChanges& changes) {
    return std::any_of(changes.sites.begin(), changes.sites.end(), [](const SiteDiff& site) {
        return site.place.recorded && site.place.function.empty() && site.place.file.empty();
    });
}

/// Whether both are one recording: one file twice, or a report and its log. A snapshot and the end
/// of one process are two.
bool is_same_recording(const model::Process& a, const model::Process& b) {
    const auto identity = [](const model::Process& process) {
        return std::tie(process.host, process.pid, process.start_wall_ns, process.duration_ns,
                        process.recorded_ns);
    };
    return a.start_wall_ns != 0 && identity(a) == identity(b);
}

std::vector<std::string> make_notes(const DiffSide& before, const DiffSide& after,
                                    const Diff& diff) {
    std::vector<std::string> notes;
    if (is_same_recording(before.report.process, after.report.process)) {
        notes.push_back("Both are the same recording (pid " +
                        std::to_string(before.report.process.pid) +
                        "): there is nothing to compare.");
    }
    for (const DeviceDiff& device : diff.devices) {
        constexpr std::uint64_t gpus = trace::DeviceInfo::max_gpus;
        if (device.index_before) {
            notes.push_back(
                "Each used one GPU: GPU " + std::to_string(*device.index_before % gpus) +
                " before is compared with GPU " + std::to_string(device.index % gpus) + " after.");
            break;
        }
    }
    for (const DeviceDiff& device : diff.devices) {
        std::string note = builds_note({before}, {after}, device);
        if (!note.empty()) {
            notes.push_back(std::move(note));
            break;
        }
    }
    for (const DiffSide* side : {&before, &after}) {
        if (!succeeded(side->report.process)) {
            notes.push_back(side->file + " " + end_text(side->report.process) +
                            ": its figures are those until then.");
        }
        for (const Lack& lack : side->lacks()) {
            // How it ended is said above.
            if (lack.kind != Lack::Kind::cut_off && lack.kind != Lack::Kind::running) {
                notes.push_back(side->file + ": " + lack.text);
            }
        }
    }
    return notes;
}

std::string with_sign(const Change& change, const std::string& size) {
    return change.size() == 0 ? size : (change.after > change.before ? "+" : "-") + size;
}

}  // namespace

FirstSites::FirstSites(const SiteChanges& all, const DiffOptions& options)
    : order(options.order), changes{{}, all.unchanged, all.before, all.after} {
    const std::size_t shown = std::min(all.sites.size(), options.top);
    const auto rest = all.sites.begin() + static_cast<std::ptrdiff_t>(shown);
    changes.sites.assign(all.sites.begin(), rest);
    others = all.sites.size() - shown;
    std::for_each(rest, all.sites.end(), [this](const SiteDiff& site) {
        others_before.add(site.before);
        others_after.add(site.after);
    });
}

std::string format_change(const Change& change) {
    return with_sign(change, format_bytes(change.size()));
}

std::string format_count_change(const Change& change) {
    return with_sign(change, format_count(change.size()));
}

std::string format_change_percent(const Change& change) {
    if (change.before == 0 || change.after == 0) {
        return change.size() == 0 ? "0.0%" : change.before == 0 ? "new" : "gone";
    }
    const double ratio = static_cast<double>(change.size()) / static_cast<double>(change.before);
    // Beyond that, the figures themselves are easier to read.
    if (ratio >= 10) {
        return "";
    }
    return with_sign(change, format_percent(change.size(), change.before));
}

std::vector<Lack> DiffSide::lacks() const {
    std::vector<Lack> all = find_lacks(report);
    all.insert(all.end(), run_lacks.begin(), run_lacks.end());
    return all;
}

Diff diff_reports(const DiffSide& before, const DiffSide& after, const DiffOptions& options) {
    Diff diff;
    const DevicePairs pairs(before.report, after.report);
    std::set<std::uint64_t> devices;
    for (const bool is_before : {true, false}) {
        for (const model::Device& device : (is_before ? before : after).report.devices) {
            const std::uint64_t index = is_before ? pairs.in_after(device.index) : device.index;
            if (device.used() && (!options.device || is_on(index, *options.device) ||
                                  is_on(pairs.in_before(index), *options.device))) {
                devices.insert(index);
            }
        }
    }
    DeviceDiffer differ(before, after, pairs, options);
    // What a framework's cache handed out goes before the GPU that it is on, as in a summary.
    const auto is_gpu = [](std::uint64_t index) { return index < trace::DeviceInfo::max_gpus; };
    std::vector<std::uint64_t> order(devices.begin(), devices.end());
    std::stable_sort(order.begin(), order.end(), [&](std::uint64_t a, std::uint64_t b) {
        return std::make_pair(a % trace::DeviceInfo::max_gpus, is_gpu(a)) <
               std::make_pair(b % trace::DeviceInfo::max_gpus, is_gpu(b));
    });
    for (const std::uint64_t index : order) {
        diff.devices.push_back(differ.diff(index));
    }
    static_cast<ScopeChanges&>(diff) = diff_scopes({before}, {after});
    diff.notes = make_notes(before, after, diff);
    return diff;
}

SiteChanges diff_sites(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                       const DiffOptions& options) {
    SiteSums sums(options);
    const auto add = [&](const std::vector<DiffSide>& sides, SiteStats SiteDiff::*figures) {
        for (const DiffSide& side : sides) {
            CallChains calls(side.resolver, false);
            // Calls of nn.Modules allocate in PyTorch's cache.
            const DevicesAt level(side.report, options.by_parts ? Level::framework : Level::driver);
            sums.add(
                side, calls,
                [&](std::uint64_t device) {
                    return level.has(device) && (!options.device || is_on(device, *options.device));
                },
                figures);
        }
    };
    add(before, &SiteDiff::before);
    add(after, &SiteDiff::after);
    return sums.take();
}

ScopeChanges diff_scopes(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after) {
    std::map<std::pair<std::string, std::string>, ScopeDiff> scopes;
    const auto add = [&](const std::vector<DiffSide>& sides, std::uint64_t Change::*when) {
        for (const DiffSide& side : sides) {
            for (std::size_t i = 0; i < side.report.scopes.size(); ++i) {
                const model::Scope& scope = side.report.scopes[i];
                ScopeDiff& out = scopes[{scope_path(side.report, i), scope.kind}];
                model::add_to(out.entries.*when, scope.entries);
                model::add_to(out.peak_growth_bytes.*when, scope.peak_growth_bytes);
                model::add_to(out.allocated_bytes.*when, scope.allocated_bytes);
                model::add_to(out.escaped_bytes.*when, scope.escaped.bytes);
            }
        }
    };
    add(before, &Change::before);
    add(after, &Change::after);
    ScopeChanges changes;
    for (auto& [key, scope] : scopes) {
        scope.path = key.first;
        scope.kind = key.second;
        const std::array<Change, 4> figures = {scope.entries, scope.peak_growth_bytes,
                                               scope.allocated_bytes, scope.escaped_bytes};
        if (std::all_of(figures.begin(), figures.end(),
                        [](const Change& change) { return change.size() == 0; })) {
            ++changes.unchanged_scopes;
        } else {
            changes.scopes.push_back(std::move(scope));
        }
    }
    std::stable_sort(changes.scopes.begin(), changes.scopes.end(),
                     [](const auto& a, const auto& b) {
                         return a.peak_growth_bytes.size() > b.peak_growth_bytes.size();
                     });
    return changes;
}

std::string builds_note(const std::vector<DiffSide>& before, const std::vector<DiffSide>& after,
                        const SiteChanges& changes) {
    return has_unnamed(changes) && !same_builds(before, after)
               ? "The two recordings ran different builds, and some of their functions have no "
                 "names: those are told apart by their addresses and may be one. Put the binaries "
                 "back to have names."
               : std::string();
}

}  // namespace memlab::report
