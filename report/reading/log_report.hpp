// The steps from an event log that was read to its report: shared by those who read it at once
// (source.cpp) and who follow it (followed_log.cpp).
#pragma once

#include <cstdint>
#include <string>

#include "model/report.hpp"
#include "report/reading/reader.hpp"

struct stat;

namespace memlab::report {

/// What a reading says of the log, without what lies behind its end.
DeriveResult describe_reading(const std::string& log_path, const trace::LogReadResult& read);

/// The report of what was aggregated from a log, `read` of it. Never throws.
ReadResult report_of_log(const trace::Aggregator& figures, const DeriveResult& read);

/// That the process still runs and writes the log: it has run until now, not until its last event.
void add_time_until_now(model::Process& process);

/// Who writes a log.
enum class LogWriterState : std::uint8_t {
    writing,
    gone,     ///< there is no such process, or it has closed the log
    unknown,  ///< it is not seen from here: another host's, a container's, another user's
};

/// Whether the process, of that host and id, has the file open.
LogWriterState find_log_writer(const struct stat& log, std::uint64_t pid, const std::string& host);

}  // namespace memlab::report
