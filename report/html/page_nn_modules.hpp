// The nn.Modules of a recording as the page has them: all stacks of calls whose innermost one is of
// the same qualified name and class are one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "model/report.hpp"
#include "report/nn_module_parts.hpp"

namespace memlab::report {

struct PageNnModules {
    struct NnModule {
        std::optional<std::string> name;
        std::optional<std::string> class_name;
        std::uint64_t number = 0;  ///< of one without a name; else 0

        bool operator==(const NnModule&) const = default;
        bool operator<(const NnModule& other) const {
            return std::tie(name, class_name, number) <
                   std::tie(other.name, other.class_name, other.number);
        }
    };
    static constexpr std::size_t every_depth = std::numeric_limits<std::size_t>::max();

    std::vector<NnModule> all;
    std::vector<std::size_t> of_stack;  ///< by index into Report::nn_modules
    /// Components of a name that are told apart.
    std::size_t depth = every_depth;

    NnModuleEntries entries;
    /// The number of what has this trace::NnModuleHolder::code(); none where the report lacks it.
    std::optional<std::size_t> of_code(std::uint32_t code) const {
        const auto entry = entries.index(code);
        return entry ? std::optional(of_stack[*entry]) : std::nullopt;
    }
    /// By number, what stands for it where `components` of a name are told apart. Adds what is
    /// missing; what is there keeps its number.
    std::vector<std::size_t> to_depth(std::size_t components);
    /// The most components that a name has.
    std::size_t deepest() const;
};

PageNnModules page_nn_modules(const model::Report& report);

}  // namespace memlab::report
