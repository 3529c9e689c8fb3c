// Renders a what-if as text (a table, the failures, the choice) and as JSON (docs/whatif.md).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"
#include "report/whatif/table.hpp"

namespace memlab::report::whatif {

/// The place of a stack, as in the summary; "" when unknown.
using DescribeStack = std::function<std::string(std::uint32_t stack)>;

std::string render_text(const Recording& recording, const std::vector<Table>& tables,
                        const report::Style& style, const DescribeStack& describe_stack);

/// One object, one line per value; ends with a newline.
std::string render_json(const std::string& log, const Recording& recording,
                        const std::vector<Table>& tables, const DescribeStack& describe_stack);

}  // namespace memlab::report::whatif
