// Text of a recording inside of other formats: it cannot end a cell or become markup.
#pragma once

#include <string>

namespace memlab::report {

/// For GitHub's Markdown, also inside a table.
std::string escaped_markdown(const std::string& text);

/// A field of a CSV file (RFC 4180). A spreadsheet does not take it for a formula.
std::string csv_field(const std::string& text);

}  // namespace memlab::report
