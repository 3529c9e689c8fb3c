// Reads reports from untrusted files: they may be truncated, damaged, hostile, or not reports at
// all. The result is a Report with checked types, ranges and indexes, or one line that says what is
// wrong and what to do. A log gives the report that the process itself would have written.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "model/report.hpp"

namespace memlab::model {
enum class Moment : std::uint8_t;
}

namespace memlab::trace {
class Aggregator;
class RecordSink;
struct LogReadResult;
}  // namespace memlab::trace

namespace memlab::report {

/// The error of a recording for which there is no memory.
inline constexpr char too_large_to_read[] =
    "needs more memory than there is; read it on a larger machine";

/// Creates the sink that an event log is read into while it is aggregated into a report. The sink
/// must forward every record to `aggregator` and may inspect it in between. May throw
/// std::bad_alloc.
using LogSinkFactory = std::function<std::unique_ptr<trace::RecordSink>(
    const std::string& log, trace::Aggregator& aggregator)>;

/// What a sink of a LogSinkFactory may be, too: it is told when the log was read, while the
/// aggregator is there.
class LogFollower {
  public:
    LogFollower() = default;
    LogFollower(const LogFollower&) = delete;
    LogFollower& operator=(const LogFollower&) = delete;
    virtual ~LogFollower() = default;

    /// May throw std::bad_alloc.
    virtual void finish(const trace::LogReadResult& read) = 0;
};

struct ReadResult {
    std::optional<model::Report> report;
    /// If there is no report: "what is wrong; what to do", without the file's name.
    std::string error;
    /// If there is a report: what is wrong with the event log that it came from; else empty.
    std::string warning;
    /// The report is a file's, and beside it, under the name of its log, is another process's.
    bool other_log_beside = false;
};

/// Parses the text of a report. Never throws, whatever the input.
ReadResult parse_report(std::string_view json);

/// The report of a recording: as parsing its text, but made of the aggregator directly. Members for
/// other tools are in it, too. Never throws.
ReadResult make_report(const trace::Aggregator& from, model::Moment moment);

/// Code that was generated at run time has another address in each run: frames without a module
/// lose theirs.
void forget_generated_addresses(model::Report& report);

/// Whether steps that the program does not mark are looked for in a log (found_steps.hpp).
enum class StepSearch : std::uint8_t { none, in_log };

/// Reads the report or event log `path` (distinguished by content, not by name); a log through
/// `make_sink`, if given, else with `search`. Never throws.
ReadResult read_report(const std::string& path, const LogSinkFactory& make_sink = {},
                       StepSearch search = StepSearch::none);

/// What stands in for read_report() where recordings are read again and again.
using RecordingReader = std::function<ReadResult(const std::string& path)>;

/// Why `path` cannot be opened or is no file that could hold a recording: "what; what to do".
/// Empty: it may hold one. Never throws but std::bad_alloc.
std::string file_problem(const std::string& path);

/// By content; false for files that cannot be read.
bool is_event_log(const std::string& path);

/// True while process `pid` has the log open, that is, still writes it. Compares open files, since
/// the pid may have been reused or may be of another container.
bool is_being_written(const std::string& log, std::uint64_t pid);

/// A report as text, and where it came from.
struct DeriveResult {
    std::string json;     ///< empty on failure
    std::string error;    ///< "what is wrong; what to do"
    std::string warning;  ///< if the log is damaged: what, and where
    bool from_log = false;
    std::uint64_t records = 0;               ///< of the log
    std::optional<model::LogInfo::Gap> gap;  ///< of a log with a ring that has lost records
    /// Describes data after the log's last record; empty if there is none, or only zeros that a
    /// process had reserved.
    std::string leftover;
    ReadResult model;  ///< what `json` is the text of; only read_with_model() sets it
};

/// Reads an event log into `aggregator`; everything but the text. Never throws.
DeriveResult aggregate_log(const std::string& log_path, const LogSinkFactory& make_sink,
                           trace::Aggregator& aggregator);

/// What a reading says of a log, without the file's name.
std::string log_message(const trace::LogReadResult& read, const std::string& path);

/// What is wrong with a damaged log: "event log is damaged at ...", without a full stop.
std::string log_damage(const trace::LogReadResult& read, const std::string& path);

/// Reads the log of a report that was read alone through what is meant for one that is aggregated
/// into its report. Never throws.
void read_through(const std::string& log_path, const LogSinkFactory& make_sink);

/// Aggregates an event log into a JSON report. Never throws.
DeriveResult derive_json(const std::string& log_path);

/// The text of the report `path`, or the report derived from the event log `path`. Does not check
/// that a report is valid. Never throws.
DeriveResult read_json(const std::string& path);

/// The same, and the report itself: parsed from the text of a report, made from an event log.
DeriveResult read_with_model(const std::string& path);

/// Times of a process as measured by its parent.
struct ProcessTimes {
    std::uint64_t start_wall_ns = 0;  ///< before it began to record
    std::uint64_t end_wall_ns = 0;    ///< 0: unknown
};

/// Adds what only the parent of the process knows to a report that was cut off: `process.signal`
/// ("SIGKILL") if it is not empty, else `process.exit_code`; and the duration, unless the process
/// used another clock than `times`. Reports that were not cut off, and text that is not a report,
/// are returned unchanged. Never throws.
std::string add_process_end(const std::string& json, const std::string& signal, int exit_code,
                            const ProcessTimes& times = {});

}  // namespace memlab::report
