// Finds the event log that belongs to a report.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "model/report.hpp"
#include "trace/record.hpp"

namespace memlab::report {

struct FoundLog {
    FoundLog() = default;
    // NOLINTNEXTLINE(google-explicit-constructor): a log whose path is known is one that was found
    FoundLog(std::string found) : path(std::move(found)) {}
    FoundLog(std::string found, bool of_another, std::string what)
        : path(std::move(found)), is_of_another_process(of_another), problem(std::move(what)) {}

    bool empty() const { return path.empty(); }

    std::string path;  ///< the log of the report's process; empty: there is none, or no use
    bool is_of_another_process = false;
    std::string problem;  ///< a sentence on a file that is there and cannot be read
};

/// What a name says of a recording's file, compressed or not: "memlab.train.4711.memlog.zst".
struct RecordingName {
    std::string stem;  ///< "memlab.train.4711": of the report and of its log
    bool is_log = false;
};
/// None: it is neither a report's (.json) nor a log's.
std::optional<RecordingName> recording_name(std::string_view name);

/// The file beside a report, compressed or not, that has the name of its log:
/// "memlab.train.4711.memlog", or that and ".gz" or ".zst", for "memlab.train.4711.json". Empty:
/// there is none.
std::string name_of_log_beside(const std::string& file);

/// A compressed log has to be unpacked as a whole to be looked at.
enum class Unpack : std::uint8_t { no, yes };

/// The log beside a report; with Unpack::no none where it is compressed. Throws nothing but
/// std::bad_alloc.
FoundLog find_log_beside(const std::string& file, const model::Report& report, Unpack unpack);

/// `file`, from which `report` was read, if it is an event log itself; else that beside it. Throws
/// nothing but std::bad_alloc.
FoundLog look_for_log(const std::string& file, const model::Report& report);

/// The path of that; empty if there is none.
std::string find_event_log(const std::string& file, const model::Report& report);

/// The process that an event log was recorded in, from its first record; none if `log` is not an
/// event log or has no record. Throws nothing but std::bad_alloc.
std::optional<trace::ProcessInfo> read_process_info(const std::string& log);

}  // namespace memlab::report
