// Reads a budget file: TOML, or the same structure as JSON (docs/ci.md). Nothing is ignored, since
// a budget guards releases: an unknown key, an invalid limit, a metric that sites do not have are
// errors with line and column.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/check/limit.hpp"

namespace memlab::report::check {

struct Budget {
    std::vector<Limit> limits;
    std::string baseline;      ///< as written in the file; empty: none
    std::string suppressions;  ///< path of the suppressions file, likewise
};

struct BudgetResult {
    std::optional<Budget> budget;
    std::string error;  ///< without a budget: "ci.toml:7:1: what; what to do", one line
};

/// Parses the text of a budget, as JSON when it begins with "{"; errors name the file `name`.
/// Throws std::bad_alloc only.
BudgetResult parse_budget(std::string_view text, const std::string& name);

/// Reads `path`; paths in it are relative to its folder.
BudgetResult read_budget(const std::string& path);

}  // namespace memlab::report::check
