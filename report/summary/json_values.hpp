// Pieces of JSON that memlab-report's commands have in common. docs/report-format.md describes the
// summary's; each command's own document names those that it uses.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// Members keep the order in which they are added.
using ordered_json = nlohmann::ordered_json;

/// Null for empty text.
ordered_json text_or_null(const std::string& text);

/// [{file, error}]: what could not be read, and why.
ordered_json errors_json(const std::vector<std::pair<std::string, std::string>>& errors);

/// {function, file, line, module, address, through, problem} (null where unknown), or null where no
/// stack was recorded.
ordered_json place_json(const Place& place);

/// [{function (with parameters), file, line, module, address, inlined, python, problem}], the call
/// into CUDA first.
ordered_json stack_json(const std::vector<StackFrame>& frames);

/// File names and symbols need not be UTF-8; the output is. Indented, without a newline at the end.
std::string json_text(const ordered_json& value);

/// The document around json_text() of several reports: {"format": `format`, "version": 1,
/// "reports": [...], "errors": [{"file", "error"}]}. Ends with a newline.
std::string json_document(std::string_view format, const std::vector<std::string>& reports,
                          const std::vector<std::pair<std::string, std::string>>& errors);

}  // namespace memlab::report
