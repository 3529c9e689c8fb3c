#include "report/views/site_stats.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "model/bounded_sum.hpp"
#include "report/device_label.hpp"
#include "report/summary/json_object.hpp"

namespace memlab::report {

void SiteStats::add(const SiteStats& other) {
    model::add_to(peak_count, other.peak_count);
    model::add_to(peak_bytes, other.peak_bytes);
    model::add_to(count, other.count);
    model::add_to(bytes, other.bytes);
    model::add_to(live_count, other.live_count);
    model::add_to(live_bytes, other.live_bytes);
    model::add_to(temporaries, other.temporaries);
    held_only = held_only || other.held_only;
}

SiteStats site_stats(const model::Site& site) {
    SiteStats stats{
        0, 0, site.count, site.bytes, site.live_count, site.live_bytes, site.temporaries};
    if (model::is_in_curves(site.kind)) {
        stats.peak_count = site.at_peak_count;
        stats.peak_bytes = site.at_peak_bytes;
    }
    stats.held_only = site.part.has_value();
    return stats;
}

ViewedMemory::ViewedMemory(const model::Device& device, const std::string& kind)
    : device_(&device), kind_(kind) {
    for (const model::Holders::Share& share : device.kind_curves->at(kind).at_peak.sites) {
        at_peak_.emplace(share.site, share);
    }
}

SiteStats ViewedMemory::stats(const model::Site& site, std::size_t index) const {
    SiteStats stats = site_stats(site);
    if (const auto held = at_peak_.find(index); held != at_peak_.end()) {
        stats.peak_count = held->second.count;
        stats.peak_bytes = held->second.bytes;
    }
    return stats;
}

SiteStats ViewedMemory::stats(const model::Report& report) const {
    SiteStats sum;
    for (std::size_t i = 0; i < report.sites.size(); ++i) {
        if (has(report.sites[i])) {
            sum.add(stats(report.sites[i], i));
        }
    }
    sum.held_only = false;  // what nn.Modules had is in it
    return sum;
}

std::vector<ViewedMemory> viewed_memory(const model::Report& report, const std::vector<bool>& taken,
                                        Order order, std::optional<std::uint64_t> device) {
    std::set<std::pair<std::uint64_t, std::string>> chosen;
    if (std::find(taken.begin(), taken.end(), false) != taken.end()) {
        for (std::size_t i = 0; i < report.sites.size(); ++i) {
            if (taken[i] && !model::is_in_curves(report.sites[i].kind)) {
                chosen.emplace(report.sites[i].device, report.sites[i].kind);
            }
        }
    }
    std::vector<ViewedMemory> all;
    for (const model::Device& each : report.devices) {
        if (!each.used() || (device && !is_on(each.index, *device))) {
            continue;
        }
        all.emplace_back(each);
        if (order == Order::peak && each.kind_curves) {
            for (const auto& [kind, curve] : *each.kind_curves) {
                if (is_worth_telling(each, curve.curve.peak_bytes) ||
                    chosen.contains({each.index, kind})) {
                    all.emplace_back(each, kind);
                }
            }
        }
    }
    return all;
}

const std::vector<std::string>& order_names() {
    static const std::vector<std::string> names = {"peak", "bytes", "count", "live", "temporaries"};
    return names;
}

Order parse_order(const std::string& name) {
    const auto& names = order_names();
    return static_cast<Order>(std::find(names.begin(), names.end(), name) - names.begin());
}

nlohmann::ordered_json site_stats_json(const SiteStats& stats) {
    return JsonObject::of(stats);
}

double fraction(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace memlab::report
