// Adds the names of functions, files and lines to a report, so that it can be read without the
// binaries. All other members are kept, including unknown ones of a later memlab.
//
// Guarantees: a name comes from the binary that ran (report/symbols/symbolizer.hpp), or is omitted.
// Existing names are kept and missing ones are looked up, so the operation is idempotent and a
// report may be completed on several machines.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "report/symbols/symbolizer.hpp"

namespace memlab::report {

struct EmbedResult {
    std::string json;                  ///< empty on failure
    std::string error;                 ///< "what; what to do"
    std::size_t frames = 0;            ///< native frames
    std::size_t named = 0;             ///< of these, frames with names now
    std::vector<std::string> changed;  ///< modules whose file is not the binary that ran
};

/// The text of a report in the layout of the JSON writer: a line for each member, and for each
/// entry of its lists and tables.
std::string format_report(const nlohmann::ordered_json& root);

/// `json`: the text of a report. Never throws.
EmbedResult embed_symbols(std::string_view json, Symbolizer& symbolizer);

}  // namespace memlab::report
