// The memory of a function, line by line: which of its lines were being run when memory was
// allocated, how much the program held at those moments, and how much each line got.
//
// A line stands for everything that it called: the line of a function is the one that its frame was
// at, however deep below it the allocation was made. A line that calls its own function again has
// what happens in there as well, once.
//
// Columns: report/lines/query.hpp.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/lines/query.hpp"
#include "report/lines/stack_moments.hpp"
#include "report/model.hpp"
#include "report/symbols/resolver.hpp"

namespace memlab::report {

struct LineTable {
    struct Row {
        std::vector<std::optional<std::uint64_t>> values;  ///< by column; none: not known
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

/// From a report and, where `log` names one, the moments of the event log that it was made of:
/// those `seen` for the same query when the report was read, else the log is read again. `problem`:
/// what is missing ("what; what to do"), then the tables are empty.
LineTables line_tables(const Report& report, Resolver& resolver, const std::string& log,
                       const LineQuery& query, std::string* problem,
                       const StackMoments* seen = nullptr);

}  // namespace memlab::report
