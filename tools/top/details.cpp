#include "tools/top/details.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace memlab::tools {
namespace {

using Name = std::pair<std::string, std::string>;

Name name_of(const model::IntervalDocument::NnModule& nn_module) {
    return {nn_module.name.value_or(""), nn_module.class_name.value_or("")};
}

}  // namespace

NnModules grown_since(const NnModules& before, const NnModules& now) {
    std::map<Name, std::pair<std::uint64_t, std::uint64_t>> held;
    for (const auto& nn_module : before) {
        auto& [bytes, count] = held[name_of(nn_module)];
        bytes += nn_module.bytes;
        count += nn_module.count;
    }
    NnModules grown;
    for (auto nn_module : now) {
        const auto& [bytes, count] = held[name_of(nn_module)];
        if (nn_module.bytes > bytes) {
            nn_module.bytes -= bytes;
            nn_module.count -= std::min(count, nn_module.count);
            grown.push_back(std::move(nn_module));
        }
    }
    std::stable_sort(grown.begin(), grown.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    return grown;
}

}  // namespace memlab::tools
