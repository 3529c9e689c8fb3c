#include "report/runs/nn_module_peaks.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include "model/bounded_sum.hpp"
#include "report/nn_module_parts.hpp"

namespace memlab::report {

std::vector<NnModulePeak> nn_module_peaks(const model::Report& report) {
    std::vector<NnModulePeak> peaks;
    if (report.nn_modules.empty()) {
        return peaks;
    }
    for (const model::Device& device : report.devices) {
        std::uint64_t outside = 0;
        for (const model::Site& site : report.sites) {
            if (site.device == device.index && model::is_in_curves(site.kind)) {
                model::add_to(outside, site.at_peak_bytes);
            }
        }
        for (NnModuleAtPeak& each : nn_modules_at_peak(report, device)) {
            outside -= std::min(outside, each.bytes);
            peaks.push_back({device.index, std::move(each.name), each.bytes});
        }
        if (outside != 0) {
            peaks.push_back({device.index, outside_nn_modules, outside});
        }
    }
    return peaks;
}

std::vector<NnModuleSpread> spread_nn_modules(const std::vector<NnModulesOfRank>& ranks,
                                              Level level, std::size_t most) {
    std::map<std::string, NnModuleSpread> by_name;
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        const DevicesAt shown(*ranks[i].report, level);
        for (const NnModulePeak& peak : ranks[i].peaks) {
            if (shown.has(peak.device)) {
                NnModuleSpread& spread = by_name[peak.name];
                spread.name = peak.name;
                spread.bytes.resize(ranks.size());
                model::add_to(spread.bytes[i], peak.bytes);
            }
        }
    }
    std::vector<NnModuleSpread> all;
    for (auto& [name, spread] : by_name) {
        const auto [min, max] = std::minmax_element(spread.bytes.begin(), spread.bytes.end());
        spread.min_rank = static_cast<std::size_t>(min - spread.bytes.begin());
        spread.max_rank = static_cast<std::size_t>(max - spread.bytes.begin());
        all.push_back(std::move(spread));
    }
    std::stable_sort(all.begin(), all.end(), [](const NnModuleSpread& a, const NnModuleSpread& b) {
        return std::tuple(a.difference(), a.bytes[a.max_rank]) >
               std::tuple(b.difference(), b.bytes[b.max_rank]);
    });
    all.resize(std::min(all.size(), most));
    return all;
}

}  // namespace memlab::report
