#include "report/html/page_nn_modules.hpp"

#include <algorithm>
#include <map>
#include <string_view>
#include <unordered_map>

namespace memlab::report {

namespace {

/// Where the next component of a qualified name ends, after the one that ends at `end`; 0: none.
std::size_t next_end(std::string_view name, std::size_t end) {
    return std::min(name.find('.', end + 1), name.size());
}

std::size_t depth_of(std::string_view name) {
    std::size_t depth = 0;
    for (std::size_t end = 0; end < name.size(); end = next_end(name, end)) {
        ++depth;
    }
    return depth;
}

/// The first components of a qualified name.
std::string_view beginning(std::string_view name, std::size_t components) {
    std::size_t end = 0;
    for (std::size_t i = 0; i < components && end < name.size(); ++i) {
        end = next_end(name, end);
    }
    return name.substr(0, end);
}

}  // namespace

std::vector<std::size_t> PageNnModules::to_depth(std::size_t components) {
    const std::size_t count = all.size();
    all.reserve(2 * count + 1);  // the views below stay valid
    // What shortened names may be already; those without a name are one, by no name.
    std::unordered_map<std::string_view, std::size_t> numbers;
    std::optional<std::size_t> nameless;
    for (std::size_t i = 0; i < count; ++i) {
        const NnModule& each = all[i];
        if (!each.class_name && each.number == 0 && each.name) {
            numbers.emplace(*each.name, i);
        } else if (each == NnModule{}) {
            nameless = i;
        }
    }
    std::vector<std::size_t> result(count);
    for (std::size_t i = 0; i < count; ++i) {
        const std::optional<std::string>& name = all[i].name;
        result[i] = i;
        if (!name) {
            if (components == 0 && !nameless) {
                nameless = all.size();
                all.emplace_back();
            }
            result[i] = components == 0 ? *nameless : i;
        } else if (depth_of(*name) > components) {
            const std::string_view shorter = beginning(*name, components);
            const auto [at, is_new] = numbers.try_emplace(shorter, all.size());
            if (is_new) {
                all.push_back({std::string(shorter), std::nullopt, 0});
            }
            result[i] = at->second;
        }
    }
    return result;
}

std::size_t PageNnModules::deepest() const {
    std::size_t most = 0;
    for (const NnModule& each : all) {
        most = std::max(most, each.name ? depth_of(*each.name) : 0);
    }
    return most;
}

PageNnModules page_nn_modules(const model::Report& report) {
    PageNnModules modules;
    modules.entries = NnModuleEntries(report);
    std::map<PageNnModules::NnModule, std::size_t> numbers;
    modules.of_stack.reserve(report.nn_modules.size());
    for (const model::NnModuleStack& stack : report.nn_modules) {
        const auto [at, is_new] = numbers.try_emplace(
            {stack.name, stack.class_name, stack.name ? 0 : stack.nn_module}, modules.all.size());
        if (is_new) {
            modules.all.push_back(at->first);
        }
        modules.of_stack.push_back(at->second);
    }
    return modules;
}

}  // namespace memlab::report
