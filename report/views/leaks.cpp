#include "report/views/leaks.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "report/names.hpp"
#include "report/place_text.hpp"
#include "report/units.hpp"

namespace memlab::report {

namespace {

constexpr std::size_t not_suppressed = static_cast<std::size_t>(-1);

std::size_t suppression_of(const Site& site, const std::vector<StackFrame>& frames,
                           const std::vector<Suppression>& suppressions, bool also_built_in) {
    const auto found =
        std::find_if(suppressions.begin(), suppressions.end(), [&](const Suppression& each) {
            return (also_built_in || !each.built_in) && each.matches(site, frames);
        });
    return found == suppressions.end() ? not_suppressed
                                       : static_cast<std::size_t>(found - suppressions.begin());
}

/// Rows by place and kind.
class Rows {
  public:
    void add(const Place& place, const Site& site, std::size_t index) {
        const auto [entry, is_new] = known_.try_emplace({place, site.kind}, rows_.size());
        if (is_new) {
            rows_.push_back({place, site.kind, site.api, {}, {}, {}});
        }
        rows_[entry->second].add(site, index);
    }

    std::vector<SiteRow> take(Order order) {
        std::stable_sort(rows_.begin(), rows_.end(), [order](const auto& a, const auto& b) {
            return order == Order::count ? a.figures.live_count > b.figures.live_count
                                         : a.figures.live_bytes > b.figures.live_bytes;
        });
        return std::move(rows_);
    }

  private:
    std::map<std::pair<Place, std::string>, std::size_t> known_;
    std::vector<SiteRow> rows_;
};

DeviceLeaks leaks_of(const Report& report, const Device& device, Resolver& resolver,
                     const std::vector<bool>& taken, const std::vector<Suppression>& suppressions,
                     Order order) {
    DeviceLeaks leaks;
    leaks.device = &device;
    Rows leaked;
    std::map<std::size_t, Rows> kept;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const Site& site = report.sites[i];
        if (site.device != device.index || site.live_count == 0 || !taken.at(i)) {
            continue;
        }
        const std::size_t by =
            suppression_of(site, resolver.frames(site.stack), suppressions, true);
        Rows& rows = by == not_suppressed ? leaked : kept[by];
        rows.add(resolver.place(site.stack), site, i);
        (by == not_suppressed ? leaks.leaked : leaks.suppressed).add(figures_of(site));
    }
    leaks.rows = leaked.take(order);
    for (auto& [by, rows] : kept) {
        DeviceLeaks::Suppressed out{&suppressions[by], 0, 0, rows.take(order)};
        Figures sum;
        for (const SiteRow& row : out.rows) {
            sum.add(row.figures);
        }
        out.count = sum.live_count;
        out.bytes = sum.live_bytes;
        leaks.suppressions.push_back(std::move(out));
    }
    std::stable_sort(leaks.suppressions.begin(), leaks.suppressions.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return leaks;
}

GrowingSteps growth_of(const Report& report, const Steps& steps, Resolver& resolver,
                       const std::vector<bool>& taken, const std::vector<Suppression>& suppressions,
                       const LeakOptions& options) {
    GrowingSteps out;
    out.steps = &steps;
    for (const Steps::Growing& growing : steps.growing) {
        const Site& site = report.sites.at(growing.site);
        if (!taken.at(growing.site) || (options.device && site.device != *options.device)) {
            continue;
        }
        if (suppression_of(site, resolver.frames(site.stack), suppressions, false) !=
            not_suppressed) {
            ++out.suppressed;
            continue;
        }
        const Place& place = resolver.place(site.stack);
        const auto same = std::find_if(out.rows.begin(), out.rows.end(), [&](const auto& row) {
            return row.place == place && row.kind == site.kind;
        });
        GrowingSteps::Row& row =
            same != out.rows.end()
                ? *same
                : out.rows.emplace_back(GrowingSteps::Row{place, site.kind, 0, {}});
        row.bytes_per_step += growing.trend.bytes_per_step;
        row.sites.push_back(growing.site);
    }
    std::stable_sort(out.rows.begin(), out.rows.end(), [](const auto& a, const auto& b) {
        return a.bytes_per_step > b.bytes_per_step;
    });
    return out;
}

/// A name as a pattern that matches it whole: what a pattern would take for itself becomes ?.
std::string pattern_for(std::string name) {
    for (char& c : name) {
        if (static_cast<unsigned char>(c) < ' ' || c == '*' || c == '[' || c == '\\') {
            c = '?';
        }
    }
    return name;
}

std::string block_for(const SiteRow& row, std::size_t number) {
    const Place& place = row.place;
    std::string text = "# " + format_bytes(row.figures.live_bytes) + " in " +
                       format_plural(row.figures.live_count, "allocation") + "\n[leak " +
                       std::to_string(number) + "]\nreason = (say why this may stay)\n";
    if (!place.function.empty()) {
        text += "func = " + pattern_for(place.function) + "\n";
    }
    if (!place.file.empty()) {
        text += "file = " + pattern_for(base_name(place.file)) + "\n";
    } else if (!place.module.empty()) {
        text += "module = " + pattern_for(base_name(place.module)) + "\n";
    }
    return text + "kind = " + pattern_for(row.kind) + "\napi = " + pattern_for(row.api) + "\n";
}

}  // namespace

Leaks find_leaks(const Report& report, Resolver& resolver, const std::vector<bool>& taken,
                 const std::vector<Suppression>& suppressions, const LeakOptions& options) {
    Leaks leaks;
    for (const Device& device : report.devices) {
        if (device.used() && (!options.device || *options.device == device.index)) {
            leaks.devices.push_back(
                leaks_of(report, device, resolver, taken, suppressions, options.order));
        }
    }
    for (const Steps& steps : report.steps) {
        leaks.steps.push_back(growth_of(report, steps, resolver, taken, suppressions, options));
    }
    return leaks;
}

std::string generate_suppressions(const Leaks& leaks) {
    std::string text;
    std::size_t number = 0;
    for (const DeviceLeaks& device : leaks.devices) {
        for (const SiteRow& row : device.rows) {
            text.append(text.empty() ? "" : "\n").append(block_for(row, ++number));
        }
    }
    return text;
}

}  // namespace memlab::report
