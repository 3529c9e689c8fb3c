// Renders line tables as annotated source and as JSON.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/lines/line_tables.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct LineTextOptions {
    Style style;
    std::string working_directory;       ///< files below it are shown relative to it
    std::vector<std::string> sources;    ///< further folders to search for them
    std::uint64_t recorded_wall_ns = 0;  ///< newer sources get a note
    std::uint32_t context = 10;          ///< lines shown around each that allocated
};

/// In pytorch_memlab's layout: "## function", the column names one word per row, then the lines of
/// the function with their figures; those far from any that allocated are summed up. Sources are
/// read from their recorded paths.
std::string render_lines(const LineTables& tables, const LineTextOptions& options);

/// One JSON object: "device", "columns", "groups": [{"first_step", "last_step" (null: the whole
/// run), "functions": [{"function", "file", "first_line" (null: unknown), "lines": [{"line",
/// column: number (null: unknown) ..., "ooms"}]}]}], "notes".
std::string lines_json(const LineTables& tables);

}  // namespace memlab::report
