// Checks the consistency of a recording: that it can be read, and that the sums which
// docs/report-format.md promises to be equal are equal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/lacks.hpp"
#include "report/reading/reader.hpp"

namespace memlab::report {

struct Validation {
    std::vector<std::string> problems;  ///< the first ones, one line each; empty: it is sound
    std::size_t more = 0;               ///< number of further problems
    std::string what;                   ///< "report of train (pid 7), 12 sites"
    std::vector<Lack> lacks;            ///< of one that is sound otherwise

    bool sound() const { return problems.empty(); }
};

/// `recording`: as returned by read_with_model(). Throws nothing but std::bad_alloc.
Validation validate(const DeriveResult& recording);

/// The JSON path of the first difference between the report `json`, which a process or memlab-run
/// wrote, and `derived`, the report derived from its log; empty if they agree or the log dropped
/// events. Ignores how the process ended if only the parent saw that, and symbols embedded later.
std::string find_difference(std::string_view json, std::string_view derived);

}  // namespace memlab::report
