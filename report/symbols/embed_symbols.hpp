// Puts the names of functions, files and lines into a report, so that it can be read where the
// binaries are not. All else in it stays as it is, also what a later memlab put there.
//
// Guarantees: a name comes from the very binary that ran (report/symbols/symbolizer.hpp), or is
// left out. What a report carries already is kept, so doing it twice changes nothing; what is still
// unknown is asked for again, so a report may pass through several machines.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "report/symbols/symbolizer.hpp"

namespace memlab::report {

struct EmbedResult {
    std::string json;                  ///< empty on failure
    std::string error;                 ///< "what; what to do"
    std::size_t frames = 0;            ///< native ones
    std::size_t named = 0;             ///< of these, those with names now
    std::vector<std::string> changed;  ///< modules whose file is not the one that ran
};

/// `json`: the text of a report. Never throws.
EmbedResult embed_symbols(std::string_view json, Symbolizer& symbolizer);

}  // namespace memlab::report
