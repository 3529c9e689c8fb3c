// The two tables of a report that grow with the program, its call stacks and its sites, read from
// their text.
//
// As a document in memory they would take ten times the room of the file, and most of the time.
// What is not written as memlab writes it is left to the reader of the whole document, which says
// what is wrong with it; so nothing here explains itself.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "report/model.hpp"

namespace memlab::report {

/// What lies between the brackets of each table.
struct TableTexts {
    std::string_view stacks;
    std::string_view sites;
    bool found = false;  ///< each of them once
};

/// Finds the tables in a report's text. False when it nests deeper than `deepest`.
bool scan_tables(std::string_view text, int deepest, TableTexts* tables);

/// The text without what is in the tables.
std::string without_tables(std::string_view text, const TableTexts& tables);

/// Each adds the table's entries to `out`. False when anything is not as memlab writes it, or names
/// what is not there; `out` may have some of them then.
bool read_stacks(std::string_view text, std::size_t frame_count, std::vector<Stack>& out);
bool read_sites(std::string_view text, std::size_t stack_count, std::vector<Site>& out);

}  // namespace memlab::report
