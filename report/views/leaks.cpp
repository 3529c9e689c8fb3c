#include "report/views/leaks.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "model/utf8.hpp"
#include "report/device_label.hpp"
#include "report/summary/place_text.hpp"
#include "report/text/names.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// Sorts by LeakOptions::order.
std::vector<SiteRow> sorted(std::vector<SiteRow> rows, Order order) {
    std::stable_sort(rows.begin(), rows.end(), [order](const auto& a, const auto& b) {
        return order == Order::count ? a.stats.live_count > b.stats.live_count
                                     : a.stats.live_bytes > b.stats.live_bytes;
    });
    return rows;
}

DeviceLeaks find_device_leaks(const model::Report& report, const model::Device& device,
                              Resolver& resolver, const std::vector<bool>& taken,
                              const std::vector<Suppression>& suppressions, Order order) {
    DeviceLeaks leaks;
    leaks.device = &device;
    SiteRows leaked;
    std::map<const Suppression*, SiteRows> kept;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        const model::Site& site = report.sites[i];
        if (site.device != device.index || site.live_count == 0 || !taken.at(i)) {
            continue;
        }
        const Suppression* const by = find_suppression(
            suppressions, report, site, resolver.frames(site.stack), LeakKind::at_end);
        SiteRows& rows = by == nullptr ? leaked : kept[by];
        rows.add(resolver.place(site.stack), site, i);
        (by == nullptr ? leaks.leaked : leaks.suppressed).add(site_stats(site));
    }
    leaks.rows = sorted(leaked.take(), order);
    for (auto& [by, rows] : kept) {
        DeviceLeaks::Suppressed out{by, 0, 0, sorted(rows.take(), order)};
        SiteStats sum;
        for (const SiteRow& row : out.rows) {
            sum.add(row.stats);
        }
        out.count = sum.live_count;
        out.bytes = sum.live_bytes;
        leaks.suppressions.push_back(std::move(out));
    }
    std::stable_sort(leaks.suppressions.begin(), leaks.suppressions.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return leaks;
}

GrowingSteps find_growth(const model::Report& report, const model::Steps& steps, Resolver& resolver,
                         const std::vector<bool>& taken,
                         const std::vector<Suppression>& suppressions, const LeakOptions& options) {
    GrowingSteps out;
    out.steps = &steps;
    for (const model::Steps::Growing& growing : steps.growing) {
        const model::Site& site = report.sites.at(growing.site);
        if (!taken.at(growing.site) || (options.device && !is_on(site.device, *options.device))) {
            continue;
        }
        if (find_suppression(suppressions, report, site, resolver.frames(site.stack),
                             LeakKind::growing) != nullptr) {
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

/// A pattern that matches `name`: replaces by ? the special characters of patterns, what a terminal
/// obeys and does not show, and leading and trailing blanks, which the parser of suppression files
/// strips. A ? stands for a byte or for a character, so a run of bytes is a *.
std::string escape_pattern(std::string name) {
    for (char* const end : {&name.front(), &name.back()}) {
        *end = *end == ' ' ? '?' : *end;
    }
    std::string pattern;
    for (std::string_view rest = name; !rest.empty();) {
        const int length = model::utf8_length(rest);
        const std::string_view character =
            rest.substr(0, static_cast<std::size_t>(length > 0 ? length : -length));
        if (length < 0 || (length > 1 && is_control(character))) {
            pattern += '*';
        } else if (is_control(character) || character == "*" || character == "[" ||
                   character == "\\") {
            pattern += '?';
        } else {
            pattern += character;
        }
        rest.remove_prefix(character.size());
    }
    return pattern;
}

std::string suppression_block(const SiteRow& row, std::size_t number) {
    const Place& place = row.place;
    std::string text = "# " + format_bytes(row.stats.live_bytes) + " in " +
                       format_plural(row.stats.live_count, "allocation") + "\n[leak " +
                       std::to_string(number) + "]\nreason = (say why this may stay)\n";
    const auto add = [&text](const char* key, const std::string& name) {
        if (!name.empty()) {
            text.append(key).append(" = ").append(escape_pattern(name)).append("\n");
        }
    };
    add("func", place.function);
    if (!place.file.empty()) {
        add("file", base_name(place.file));
    } else {
        add("module", base_name(place.module));
    }
    add("kind", row.kind);
    add("api", row.api);
    return text;
}

}  // namespace

Leaks find_leaks(const model::Report& report, Resolver& resolver, const std::vector<bool>& taken,
                 const std::vector<Suppression>& suppressions, const LeakOptions& options) {
    Leaks leaks;
    for (const model::Device& device : report.devices) {
        if (device.used() && (!options.device || is_on(device.index, *options.device))) {
            leaks.devices.push_back(
                find_device_leaks(report, device, resolver, taken, suppressions, options.order));
        }
    }
    for (const model::Steps& steps : report.steps) {
        leaks.steps.push_back(find_growth(report, steps, resolver, taken, suppressions, options));
    }
    return leaks;
}

std::string generate_suppressions(const Leaks& leaks) {
    std::string text;
    std::size_t number = 0;
    for (const DeviceLeaks& device : leaks.devices) {
        for (const SiteRow& row : device.rows) {
            text.append(text.empty() ? "" : "\n").append(suppression_block(row, ++number));
        }
    }
    return text;
}

}  // namespace memlab::report
