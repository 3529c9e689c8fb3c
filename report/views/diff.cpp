#include "report/views/diff.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "report/names.hpp"
#include "report/summary.hpp"
#include "report/units.hpp"
#include "report/views/calls.hpp"

namespace memlab::report {

namespace {

/// What a call is known by on both sides; see the top of diff.hpp.
std::string key_of(const Place& place) {
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

const Device* find_device(const Report& report, std::uint64_t index) {
    const auto found =
        std::find_if(report.devices.begin(), report.devices.end(),
                     [&](const Device& device) { return device.index == index && device.used(); });
    return found == report.devices.end() ? nullptr : &*found;
}

std::uint64_t allocations(const Device& device) {
    Figures sum;
    for (const auto& [kind, totals] : device.kinds) {
        Figures more;
        more.count = totals.count;
        sum.add(more);
    }
    return sum.count;
}

class DeviceDiffer {
  public:
    DeviceDiffer(const DiffSide& before, const DiffSide& after, const DiffOptions& options)
        : before_(before),
          after_(after),
          options_(options),
          calls_before_(before.resolver, false),
          calls_after_(after.resolver, false) {}

    DeviceDiff diff(std::uint64_t index) {
        DeviceDiff out;
        out.index = index;
        const Device* before = find_device(before_.report, index);
        const Device* after = find_device(after_.report, index);
        if (before != nullptr && after != nullptr && before->name != after->name) {
            out.name = before->name + ", then " + after->name;
        } else {
            out.name = (after != nullptr ? after : before)->name;
        }
        add_totals(out, before, after);
        std::map<std::string, std::size_t> known;
        add_sites(out, known, before_, calls_before_, index, &SiteDiff::before);
        add_sites(out, known, after_, calls_after_, index, &SiteDiff::after);
        for (const SiteDiff& site : out.sites) {
            out.before.add(site.before);
            out.after.add(site.after);
        }
        const auto size = [this](const SiteDiff& site) {
            return Change{value_of(site.before, options_.order),
                          value_of(site.after, options_.order)}
                .size();
        };
        const std::size_t all = out.sites.size();
        std::erase_if(out.sites, [&](const SiteDiff& site) { return size(site) == 0; });
        out.unchanged = all - out.sites.size();
        std::stable_sort(out.sites.begin(), out.sites.end(),
                         [&](const auto& a, const auto& b) { return size(a) > size(b); });
        return out;
    }

  private:
    static void add_totals(DeviceDiff& out, const Device* before, const Device* after) {
        static const Device none;
        const Device& a = before != nullptr ? *before : none;
        const Device& b = after != nullptr ? *after : none;
        const auto peak = [&](Curve curve) {
            return Change{a.curve(curve).peak_bytes, b.curve(curve).peak_bytes};
        };
        out.totals = {
            {"allocated", "allocated_peak_bytes", "peak", true, peak(Curve::allocated)},
            {"reserved", "reserved_peak_bytes", "peak", true, peak(Curve::reserved)},
            {"requested", "requested_peak_bytes", "peak", true, peak(Curve::requested)},
            {"still held",
             "allocated_at_end_bytes",
             "at the end",
             true,
             {a.curve(Curve::allocated).at_end_bytes, b.curve(Curve::allocated).at_end_bytes}},
            {"allocations", "allocations", "of all kinds", false, {allocations(a), allocations(b)}},
        };
    }

    void add_sites(DeviceDiff& out, std::map<std::string, std::size_t>& known, const DiffSide& side,
                   Calls& calls, std::uint64_t device, Figures SiteDiff::*figures) {
        for (std::size_t i = 0; i < side.report.sites.size(); ++i) {
            const Site& site = side.report.sites[i];
            if (site.device != device || !side.taken.at(i)) {
                continue;
            }
            const std::vector<Place>& way = calls.of(site.stack);
            std::string key = site.kind + '\n';
            for (std::size_t c = 0; c < (options_.by_place ? 1 : way.size()); ++c) {
                key += key_of(way[c]);
            }
            const auto [entry, is_new] = known.try_emplace(std::move(key), out.sites.size());
            if (is_new) {
                out.sites.emplace_back();
            }
            SiteDiff& diff = out.sites[entry->second];
            diff.place = side.resolver.place(site.stack);
            diff.calls.assign(way.begin() + 1, options_.by_place ? way.begin() + 1 : way.end());
            diff.kind = site.kind;
            diff.api = site.api;
            (diff.*figures).add(figures_of(site));
        }
    }

    const DiffSide& before_;
    const DiffSide& after_;
    const DiffOptions& options_;
    Calls calls_before_;
    Calls calls_after_;
};

void diff_scopes(const DiffSide& before, const DiffSide& after, Diff& diff) {
    std::map<std::pair<std::string, std::string>, ScopeDiff> scopes;
    const auto add = [&](const Report& report, std::uint64_t Change::*side) {
        for (std::size_t i = 0; i < report.scopes.size(); ++i) {
            const Scope& scope = report.scopes[i];
            ScopeDiff& out = scopes[{scope_path(report, i), scope.kind}];
            out.entries.*side = scope.entries;
            out.peak_growth_bytes.*side = scope.peak_growth_bytes;
            out.allocated_bytes.*side = scope.allocated_bytes;
            out.escaped_bytes.*side = scope.escaped.bytes;
        }
    };
    add(before.report, &Change::before);
    add(after.report, &Change::after);
    for (auto& [key, scope] : scopes) {
        scope.path = key.first;
        scope.kind = key.second;
        const std::array<Change, 4> changes = {scope.entries, scope.peak_growth_bytes,
                                               scope.allocated_bytes, scope.escaped_bytes};
        if (std::all_of(changes.begin(), changes.end(),
                        [](const Change& change) { return change.size() == 0; })) {
            ++diff.unchanged_scopes;
        } else {
            diff.scopes.push_back(std::move(scope));
        }
    }
    std::stable_sort(diff.scopes.begin(), diff.scopes.end(), [](const auto& a, const auto& b) {
        return a.peak_growth_bytes.size() > b.peak_growth_bytes.size();
    });
}

/// Of all modules in stacks, whether both sides ran the same file; empty build ids tell nothing.
bool same_builds(const Report& before, const Report& after) {
    std::map<std::string, std::string> ids;
    for (const Module& module : before.modules) {
        ids.emplace(base_name(module.path), module.build_id);
    }
    return std::all_of(after.modules.begin(), after.modules.end(), [&](const Module& module) {
        const auto found = ids.find(base_name(module.path));
        return found == ids.end() || found->second == module.build_id;
    });
}

bool has_nameless(const Diff& diff) {
    for (const DeviceDiff& device : diff.devices) {
        for (const SiteDiff& site : device.sites) {
            if (site.place.recorded && site.place.function.empty() && site.place.file.empty()) {
                return true;
            }
        }
    }
    return false;
}

std::vector<std::string> notes_of(const DiffSide& before, const DiffSide& after, const Diff& diff) {
    std::vector<std::string> notes;
    if (has_nameless(diff) && !same_builds(before.report, after.report)) {
        notes.emplace_back(
            "The two recordings ran different builds, and some of their functions have no names: "
            "those are told apart by their addresses and may be one. Put the binaries back to have "
            "names.");
    }
    for (const DiffSide* side : {&before, &after}) {
        if (!ended_well(side->report.process)) {
            notes.push_back(side->file + " " + end_text(side->report.process) +
                            ": its figures are those until then.");
        }
        if (side->report.log.dropped != 0) {
            notes.push_back(side->file + " lost " +
                            format_plural(side->report.log.dropped, "event") + ".");
        }
    }
    return notes;
}

std::string with_sign(const Change& change, const std::string& size) {
    return change.size() == 0 ? size : (change.after > change.before ? "+" : "-") + size;
}

}  // namespace

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
    // Ten times as much is told better by the figures themselves.
    if (ratio >= 10) {
        return ">+999%";
    }
    return with_sign(change, format_percent(change.size(), change.before));
}

Diff diff_reports(const DiffSide& before, const DiffSide& after, const DiffOptions& options) {
    Diff diff;
    std::set<std::uint64_t> devices;
    for (const Report* report : {&before.report, &after.report}) {
        for (const Device& device : report->devices) {
            if (device.used() && (!options.device || *options.device == device.index)) {
                devices.insert(device.index);
            }
        }
    }
    DeviceDiffer differ(before, after, options);
    for (const std::uint64_t index : devices) {
        diff.devices.push_back(differ.diff(index));
    }
    diff_scopes(before, after, diff);
    diff.notes = notes_of(before, after, diff);
    return diff;
}

}  // namespace memlab::report
