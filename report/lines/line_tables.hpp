// Memory use of a function by line: how much each line allocated, and how much the program held at
// these times.
//
// A line includes everything that it called: it is the line of the function's frame in the call
// stack, however deep the allocation was. A recursive call counts once.
//
// Columns: report/lines/query.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/lines/query.hpp"
#include "report/lines/stack_moments.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

struct LineTable {
    struct Row {
        std::vector<std::optional<std::uint64_t>> values;  ///< by column; none: unknown
        std::uint64_t ooms = 0;                            ///< allocations that failed
    };
    std::string function;
    std::string file;
    int first_line = 0;  ///< of the function; 0: unknown
    bool python = false;
    std::map<int, Row> rows;
};

struct LineTables {
    struct Column {
        std::string name;
        bool bytes = true;  ///< else it counts
    };
    /// Steps first to last, counted from 1; both 0: the whole run.
    struct Group {
        std::uint64_t first_step = 0;
        std::uint64_t last_step = 0;
        std::vector<LineTable> tables;  ///< by file and first line
    };
    std::uint64_t device = 0;
    std::vector<Column> columns;
    std::vector<Group> groups;
    std::vector<std::string> notes;  ///< whole sentences
};

/// Builds tables from a report and, if `log` is not empty, from its event log: the log is read
/// again unless `collected` has its moments for the same query. `problem`: what is missing ("what;
/// what to do"); then the tables are empty.
LineTables line_tables(const model::Report& report, Resolver& resolver, const FoundLog& log,
                       const LineQuery& query, std::string* problem,
                       const StackMoments* collected = nullptr);

}  // namespace memlab::report
