// Whether a recording is sound: that it can be read, and that it says the same thing wherever it
// says it twice. docs/report-format.md promises which of its sums are equal; here they are added
// up.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/reader.hpp"

namespace memlab::report {

struct Validation {
    std::vector<std::string> problems;  ///< one line each, the first ones; empty: it is sound
    std::size_t more = 0;               ///< problems beyond these
    std::string what;                   ///< "report of train (pid 7), 12 sites"

    bool sound() const { return problems.empty(); }
};

/// `recording` as read_json() gave it. Never throws but std::bad_alloc.
Validation validate(const DeriveResult& recording);

/// How the report `json`, which a process or memlab-run wrote, differs from `derived`, which its
/// log amounts to; empty when it does not. What only the parent saw of its end, and symbols that
/// were embedded later, are no difference. A log that dropped events cannot tell: empty.
std::string difference(std::string_view json, std::string_view derived);

}  // namespace memlab::report
