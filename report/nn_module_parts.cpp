#include "report/nn_module_parts.hpp"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <map>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "model/bounded_sum.hpp"
#include "trace/aggregate/nn_modules.hpp"

namespace memlab::report {

namespace {

using model::Holders;
using model::Site;

/// Takes up to `wanted` from `whole`: the figures of a file are not trusted to add up.
std::uint64_t take(std::uint64_t& whole, std::uint64_t wanted) {
    const std::uint64_t taken = std::min(whole, wanted);
    whole -= taken;
    return taken;
}

/// A list of holders that is divided among parts of its sites.
class Divided {
  public:
    explicit Divided(Holders& holders) : holders_(holders) {
        for (std::size_t i = 0; i < holders.sites.size(); ++i) {
            at_.emplace(holders.sites[i].site, i);
        }
    }
    void divide(std::size_t site, std::size_t part, std::uint64_t count, std::uint64_t bytes) {
        const auto found = at_.find(site);
        if (found == at_.end() || (count == 0 && bytes == 0)) {
            return;
        }
        Holders::Share& whole = holders_.sites[found->second];
        Holders::Share share;
        share.site = part;
        share.count = take(whole.count, count);
        share.bytes = take(whole.bytes, bytes);
        holders_.sites.push_back(std::move(share));
    }
    void finish() {
        std::erase_if(holders_.sites, [](const Holders::Share& share) {
            return share.count == 0 && share.bytes == 0;
        });
    }

  private:
    Holders& holders_;
    std::unordered_map<std::size_t, std::size_t> at_;  ///< by site
};

struct DividedDevice {
    Divided at_peak;
    Divided live;
};

std::string row_name(const model::NnModuleStack& stack) {
    if (!stack.name) {
        return unnamed_nn_modules;
    }
    const std::string compared = compared_nn_module(*stack.name);
    return !compared.empty() ? compared : stack.class_name.value_or("outermost");
}

}  // namespace

NnModuleEntries::NnModuleEntries(const model::Report& report) {
    for (std::size_t i = 0; i < report.nn_modules.size(); ++i) {
        (report.nn_modules[i].by_label ? of_labels_ : of_calls_).push_back(i);
    }
}

std::optional<std::size_t> NnModuleEntries::index(std::uint32_t code) const {
    constexpr std::uint32_t bit = trace::NnModuleHolder::of_labels;
    const std::vector<std::size_t>& of = (code & bit) != 0 ? of_labels_ : of_calls_;
    const std::size_t number = code & ~bit;
    return number == 0 || number > of.size() ? std::nullopt : std::optional(of[number - 1]);
}

void separate_nn_modules(model::Report& report) {
    std::unordered_map<std::uint64_t, DividedDevice> devices;
    for (model::Device& device : report.devices) {
        devices.try_emplace(device.index,
                            DividedDevice{Divided(device.at_peak), Divided(device.live)});
    }
    for (std::size_t stack = 0; stack < report.nn_modules.size(); ++stack) {
        for (const model::NnModuleStack::Holding& held : report.nn_modules[stack].sites) {
            Site& whole = report.sites[held.site];
            Site part;
            part.device = whole.device;
            part.kind = whole.kind;
            part.api = whole.api;
            part.stack = whole.stack;
            part.at_peak_count = take(whole.at_peak_count, held.at_peak_count);
            part.at_peak_bytes = take(whole.at_peak_bytes, held.at_peak_bytes);
            part.live_count = take(whole.live_count, held.live_count);
            part.live_bytes = take(whole.live_bytes, held.live_bytes);
            whole.freed_elsewhere += part.live_count;  // by which categories are told
            part.part = {held.site, stack};
            if (const auto device = devices.find(part.device); device != devices.end()) {
                const std::size_t index = report.sites.size();
                device->second.at_peak.divide(held.site, index, part.at_peak_count,
                                              part.at_peak_bytes);
                device->second.live.divide(held.site, index, part.live_count, part.live_bytes);
            }
            report.sites.push_back(std::move(part));
        }
    }
    for (auto& [index, device] : devices) {
        device.at_peak.finish();
        device.live.finish();
    }
}

std::vector<std::size_t> recorded_sites(const model::Report& report,
                                        const std::vector<std::size_t>& sites) {
    std::vector<std::size_t> recorded;
    std::unordered_set<std::size_t> known;
    for (const std::size_t site : sites) {
        const auto& part = report.sites[site].part;
        const std::size_t of = part ? part->of : site;
        if (known.insert(of).second) {
            recorded.push_back(of);
        }
    }
    return recorded;
}

std::string compared_nn_module(const std::string& name) {
    static constexpr std::array<std::string_view, 3> wrappers = {
        "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
    std::string compared;
    for (std::size_t begin = 0; begin < name.size();) {
        const std::size_t end = std::min(name.find('.', begin), name.size());
        const std::string_view part = std::string_view(name).substr(begin, end - begin);
        const bool falls = std::find(wrappers.begin(), wrappers.end(), part) != wrappers.end() ||
                           (compared.empty() && part == "module");
        if (!falls) {
            compared.append(compared.empty() ? "" : ".").append(part);
        }
        begin = end + 1;
    }
    return compared;
}

bool matches_nn_module(const std::string& pattern, const std::string& name) {
    std::string around = compared_nn_module(name);
    const std::size_t first = around.find('.');
    const std::size_t root = first == std::string::npos ? 0 : first + 1;
    for (;;) {
        const bool below_root = root != 0 && around.size() > root;
        if (!around.empty() &&
            (fnmatch(pattern.c_str(), around.c_str(), 0) == 0 ||
             (below_root && fnmatch(pattern.c_str(), around.c_str() + root, 0) == 0))) {
            return true;
        }
        const std::size_t last = around.rfind('.');
        if (last == std::string::npos) {
            return false;
        }
        around.resize(last);
    }
}

std::vector<bool> matching_nn_modules(const std::string& pattern, const model::Report& report) {
    const std::string compared = compared_nn_module(pattern);
    std::vector<bool> matching;
    matching.reserve(report.nn_modules.size());
    for (const model::NnModuleStack& stack : report.nn_modules) {
        matching.push_back(stack.name && matches_nn_module(compared, *stack.name));
    }
    return matching;
}

std::string nn_module_of(const model::Report& report, const Site& site) {
    return site.part ? row_name(report.nn_modules[site.part->nn_modules]) : outside_nn_modules;
}

std::vector<NnModuleAtPeak> nn_modules_at_peak(const model::Report& report,
                                               const model::Device& device) {
    std::map<std::string, NnModuleAtPeak> by_name;
    for (const model::NnModuleStack& stack : report.nn_modules) {
        for (const model::NnModuleStack::Holding& held : stack.sites) {
            const Site& site = report.sites[held.site];
            if (held.at_peak_count != 0 && site.device == device.index &&
                model::is_in_curves(site.kind)) {
                const std::string name = row_name(stack);
                NnModuleAtPeak& sum = by_name[name];
                sum.name = name;
                model::add_to(sum.count, held.at_peak_count);
                model::add_to(sum.bytes, held.at_peak_bytes);
            }
        }
    }
    std::vector<NnModuleAtPeak> all;
    all.reserve(by_name.size());
    for (auto& [name, sum] : by_name) {
        all.push_back(std::move(sum));
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return all;
}

}  // namespace memlab::report
