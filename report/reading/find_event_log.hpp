// Finds the event log that belongs to a report.
#pragma once

#include <optional>
#include <string>

#include "model/report.hpp"
#include "trace/record.hpp"

namespace memlab::report {

/// The file beside a report that has the name of its log ("memlab.train.4711.json":
/// "memlab.train.4711.memlog").
struct LogBeside {
    std::string path;  ///< the log of the report's process; empty: there is none, or no use
    bool is_of_another_process = false;
    std::string problem;  ///< a sentence on a file that is there and cannot be read
};

/// Throws nothing but std::bad_alloc.
LogBeside find_log_beside(const std::string& file, const model::Report& report);

/// Returns `file`, from which `report` was read, if it is an event log itself; else that beside
/// it; empty if there is none. Throws nothing but std::bad_alloc.
std::string find_event_log(const std::string& file, const model::Report& report);

/// The process that an event log was recorded in, from its first record; none if `log` is not an
/// event log or has no record. Throws nothing but std::bad_alloc.
std::optional<trace::ProcessInfo> read_process_info(const std::string& log);

}  // namespace memlab::report
