// The memory of a function, line by line: which of its lines were being run when memory was
// allocated, how much the program held at those moments, and how much each line got.
//
// A line stands for everything that it called: the line of a function is the one that its frame was
// at, however deep below it the allocation was made. A line that calls its own function again has
// what happens in there as well, once.
//
// Columns are named by what they show:
//   active, reserved, allocated, requested   the most there was of that curve (of all device memory
//                                            of the process) when the line allocated
//   bytes, count                             what the line allocated in all, and how often
//   live                                     of that, what was never given back
//   at_peak                                  of that, what was held at the device's allocated peak
//   a key of torch.cuda.memory_stats         of the pool: with .peak the most of .current when the
//                                            line allocated, else its value when it last did
// A report alone has the last four kinds but the first: it has sums, not moments.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/filter.hpp"
#include "report/model.hpp"
#include "report/resolver.hpp"

namespace memlab::report {

struct LineQuery {
    std::string file;                     ///< path, or the end of one: "model.py"
    std::string function;                 ///< or the end of its name ("forward"); empty: all
    std::optional<std::uint64_t> device;  ///< none: the one that held most
    std::vector<std::string> columns;     ///< empty: the usual ones
    std::uint64_t every = 0;              ///< steps of a table; 0: one table of the whole run
    std::string mark;                     ///< name of the marks that end a step; empty: all
    Filter filter;
};

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

/// Empty when there is such a column, else what is wrong with it.
std::string check_column(const std::string& name);

/// From a report and, where `log` names one, the moments of the event log that it was made of (it
/// is read again). `problem`: what is missing ("what; what to do"), then the tables are empty.
LineTables line_tables(const Report& report, Resolver& resolver, const std::string& log,
                       const LineQuery& query, std::string* problem);

}  // namespace memlab::report
