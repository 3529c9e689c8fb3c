#include "report/views/site_stats.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "model/bounded_sum.hpp"
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
}

SiteStats site_stats(const model::Site& site) {
    SiteStats stats{
        0, 0, site.count, site.bytes, site.live_count, site.live_bytes, site.temporaries};
    if (model::is_in_curves(site.kind)) {
        stats.peak_count = site.at_peak_count;
        stats.peak_bytes = site.at_peak_bytes;
    }
    return stats;
}

SiteStats device_stats(const model::Report& report, const model::Device& device) {
    SiteStats sum;
    for (const model::Site& site : report.sites) {
        if (site.device == device.index) {
            sum.add(site_stats(site));
        }
    }
    return sum;
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
