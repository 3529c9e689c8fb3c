#include "report/views/figures.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "trace/json/bounded_sum.hpp"

namespace memlab::report {

void Figures::add(const Figures& other) {
    add_to(peak_count, other.peak_count);
    add_to(peak_bytes, other.peak_bytes);
    add_to(count, other.count);
    add_to(bytes, other.bytes);
    add_to(live_count, other.live_count);
    add_to(live_bytes, other.live_bytes);
    add_to(temporaries, other.temporaries);
}

Figures figures_of(const Site& site) {
    Figures figures{
        0, 0, site.count, site.bytes, site.live_count, site.live_bytes, site.temporaries};
    if (is_in_curves(site.kind)) {
        figures.peak_count = site.at_peak_count;
        figures.peak_bytes = site.at_peak_bytes;
    }
    return figures;
}

Figures figures_of(const Report& report, const Device& device) {
    Figures sum;
    for (const Site& site : report.sites) {
        if (site.device == device.index) {
            sum.add(figures_of(site));
        }
    }
    return sum;
}

const std::vector<std::string>& order_names() {
    static const std::vector<std::string> names = {"peak", "bytes", "count", "live", "temporaries"};
    return names;
}

Order order_of(const std::string& name) {
    const auto& names = order_names();
    return static_cast<Order>(std::find(names.begin(), names.end(), name) - names.begin());
}

std::uint64_t value_of(const Figures& figures, Order order) {
    switch (order) {
        case Order::peak:
            return figures.peak_bytes;
        case Order::bytes:
            return figures.bytes;
        case Order::count:
            return figures.count;
        case Order::live:
            return figures.live_bytes;
        case Order::temporaries:
            return figures.temporaries;
    }
    return 0;
}

nlohmann::ordered_json figures_json(const Figures& figures) {
    return {{"at_peak_bytes", figures.peak_bytes},
            {"at_peak_count", figures.peak_count},
            {"bytes", figures.bytes},
            {"count", figures.count},
            {"live_bytes", figures.live_bytes},
            {"live_count", figures.live_count},
            {"temporaries", figures.temporaries}};
}

double share_of(std::uint64_t part, std::uint64_t whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
}

}  // namespace memlab::report
