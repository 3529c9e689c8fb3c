// Reads reports from anywhere: a file may be truncated, damaged, hostile, or no report at all. What
// comes out is a Report that holds together (types, ranges, indexes), or one line saying what is
// wrong and what to do. There is one way in: an event log is first turned into the JSON that the
// process itself would have written, then read like any other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "report/model.hpp"

namespace memlab::trace {
class Aggregator;
class RecordSink;
}  // namespace memlab::trace

namespace memlab::report {

/// Looks on while an event log is added up into a report. Gets the log's path and the figures in
/// the making, and returns the sink that the log is read into: one that passes every record on to
/// `figures` and may look at them in between. May throw std::bad_alloc.
using LogFollower = std::function<std::unique_ptr<trace::RecordSink>(const std::string& log,
                                                                     trace::Aggregator& figures)>;

struct ReadResult {
    std::optional<Report> report;
    /// Without a report: "what; what to do", without the file's name.
    std::string error;
    /// With a report: what is wrong with the event log that it came from, if anything.
    std::string warning;
};

/// Parses the text of a report. Never throws, on any input at all.
ReadResult parse_report(std::string_view json);

/// Reads `path`: a report, or an event log (told apart by content, not by name), which `follower`
/// looks on at. Never throws.
ReadResult read_report(const std::string& path, const LogFollower& follower = {});

/// By its content; false for what cannot be read.
bool is_event_log(const std::string& path);

/// True while process `pid` has the log open: it lives, and adds to it. By the file itself, since a
/// number alone may be another process's by now, or one of another container.
bool is_being_written(const std::string& log, std::uint64_t pid);

/// A report as text, and where it came from.
struct DeriveResult {
    std::string json;     ///< empty on failure
    std::string error;    ///< "what; what to do"
    std::string warning;  ///< the log is damaged: what, and where
    bool from_log = false;
    std::uint64_t records = 0;  ///< of the log
    /// What the log's file holds behind its last record, in words; empty where there is nothing, or
    /// room that a process had not used yet.
    std::string leftover;
};

/// The JSON report that an event log amounts to. Never throws.
DeriveResult derive_json(const std::string& log_path, const LogFollower& follower = {});

/// The text of the report `path`, or what the event log `path` amounts to. Whether a report is one
/// is not looked at. Never throws.
DeriveResult read_json(const std::string& path, const LogFollower& follower = {});

/// What a parent knows of a process.
struct ProcessTimes {
    std::uint64_t start_wall_ns = 0;  ///< before it began to record
    std::uint64_t end_wall_ns = 0;    ///< 0: not known
};

/// Adds what only the parent of the process knows to a report that was cut off: `process.signal`
/// ("SIGKILL") where it is not empty, else `process.exit_code`; and how long it lived, unless its
/// clock was another than that of `times`. A report that tells of its own end already, and text
/// that is no report, come back unchanged. Never throws.
std::string with_end(const std::string& json, const std::string& signal, int exit_code,
                     const ProcessTimes& times = {});

}  // namespace memlab::report
