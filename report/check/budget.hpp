// Reads a budget file: TOML, or the same as JSON (docs/ci.md). A budget guards other people's
// releases, so nothing in it is passed over: an unknown key, a limit that is no limit, a metric
// that sites do not have, each is an error with its line and column.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/check/limit.hpp"

namespace memlab::check {

struct Budget {
    std::vector<Limit> limits;
    std::string baseline;      ///< as written in the file; empty: none
    std::string suppressions;  ///< a file of them, likewise
};

struct BudgetResult {
    std::optional<Budget> budget;
    std::string error;  ///< without one: "ci.toml:7:1: what; what to do", in one line
};

/// Parses the text of a budget; `name` is said in errors. JSON when it begins with "{". Never
/// throws but std::bad_alloc.
BudgetResult parse_budget(std::string_view text, const std::string& name);

/// Reads `path`; files that it names are looked for in its own folder.
BudgetResult read_budget(const std::string& path);

}  // namespace memlab::check
