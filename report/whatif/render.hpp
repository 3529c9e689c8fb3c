// A what-if for people (a table as wide as the terminal, the failures, the choice) and for scripts
// (JSON, docs/whatif.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"
#include "report/whatif/table.hpp"

namespace memlab::whatif {

/// Where a stack allocates, as the summary would say it; "" when it is not known.
using PlaceOf = std::function<std::string(std::uint32_t stack)>;

std::string render_text(const Recording& recording, const std::vector<Table>& tables,
                        const report::Style& style, const PlaceOf& place_of);

/// One object, a line per value; ends with a newline.
std::string render_json(const std::string& log, const Recording& recording,
                        const std::vector<Table>& tables, const PlaceOf& place_of);

}  // namespace memlab::whatif
