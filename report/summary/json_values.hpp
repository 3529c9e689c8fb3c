// JSON values shared by the commands of memlab-report. docs/report-format.md describes those of the
// summary; the documentation of each command names those that it uses.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/lacks.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

/// Members keep the order in which they are added.
using ordered_json = nlohmann::ordered_json;

/// Null for empty text.
ordered_json text_or_null(const std::string& text);

/// Adds the member `detail` of a label, unless it is empty.
void add_detail(const std::string& detail, ordered_json& label);

/// The member `lacks` of every document: a list of Lack::fields().
ordered_json lacks_json(const std::vector<Lack>& lacks);

/// `object`, the text of a JSON object, with `lacks` as its last member.
std::string with_lacks(std::string object, const std::vector<Lack>& lacks);

/// [{file, error}]: the files that could not be read.
ordered_json errors_json(const std::vector<std::pair<std::string, std::string>>& errors);

/// {function, file, line, module, address, through, problem} (null if unknown), or null if no stack
/// was recorded.
ordered_json place_json(const Place& place);

/// [{function (with parameters), file, line, module, address, inlined, python, problem}], the call
/// into CUDA first.
ordered_json stack_json(const std::vector<StackFrame>& frames);

/// Replaces invalid UTF-8, which file names and symbols may contain. Indented, no final newline.
std::string json_text(const ordered_json& value);

/// The document around json_text() of several reports: {"format": `format`, "version": 1,
/// "reports": [...], "lacks": what the run lacks beside its reports, "errors": [{"file",
/// "error"}]}. Ends with a newline.
std::string json_document(std::string_view format, const std::vector<std::string>& reports,
                          const std::vector<std::pair<std::string, std::string>>& errors,
                          const std::vector<Lack>& lacks = {});

}  // namespace memlab::report
