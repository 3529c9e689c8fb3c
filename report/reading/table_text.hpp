// A fast parser for the two tables of a report that grow with the program: call stacks and sites.
//
// As a JSON document in memory they would take ten times the size of the file, and most of the
// time. Text that is not formatted as memlab writes it is rejected without an error message: the
// caller then parses the whole document, which reports what is wrong.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

/// The text between the brackets of each table.
struct TableTexts {
    std::string_view stacks;
    std::string_view sites;
    bool found = false;  ///< both, exactly once
};

/// Finds the tables in a report's text. False if it is nested deeper than `max_depth`.
bool scan_tables(std::string_view text, int max_depth, TableTexts* tables);

/// The text with both tables emptied.
std::string without_tables(std::string_view text, const TableTexts& tables);

/// Append the table's entries to `out`. False if anything is not as memlab writes it or an index is
/// out of range; `out` may then hold some of the entries.
bool read_stacks(std::string_view text, std::size_t frame_count, std::vector<model::Stack>& out);
bool read_sites(std::string_view text, std::size_t stack_count, std::vector<model::Site>& out);

}  // namespace memlab::report
