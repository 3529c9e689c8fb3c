// Writes the report (docs/report-format.md) of an Aggregator. The preload library links it, and it
// runs inside other people's programs at exit. So it uses neither stdio nor locales, throws
// nothing, raises no signal (RLIMIT_FSIZE), and streams through a small buffer instead of building
// the text in memory.
//
// Deterministic: independent of the clock, the environment and the order of hash tables.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

/// What to do when the report's file exists.
enum class Existing : std::uint8_t {
    refuse,   ///< fail with EEXIST, so that two processes never share a file
    replace,  ///< replace it atomically
};

/// When a report is made.
enum class Moment : std::uint8_t {
    end,      ///< at the end of the recording
    running,  ///< a snapshot of a running process
};

struct WriteResult {
    std::string error;     ///< empty on success; else one sentence with the path and the reason
    int error_number = 0;  ///< errno of the failure: EEXIST when the name is taken
    std::uint64_t bytes = 0;

    bool ok() const { return error.empty(); }
};

/// Writes the report under a temporary name beside `path` and renames it: `path` either has the
/// whole report or is unchanged. Permissions are `mode` minus the umask. Never throws.
/// Thread-safety: the aggregator must not change meanwhile.
WriteResult write_report(const trace::Aggregator& aggregator, const std::string& path,
                         Existing existing = Existing::refuse, unsigned mode = 0666);

/// Writes the same text to an open descriptor, at its current position. It stays open.
WriteResult write_report(const trace::Aggregator& aggregator, int descriptor);

/// Returns the same text. May throw std::bad_alloc.
std::string report_to_string(const trace::Aggregator& aggregator, Moment moment = Moment::end);

/// Writes `text`, a report, in the same way. Never throws.
WriteResult write_text(std::string_view text, const std::string& path, Existing existing);

}  // namespace memlab::report
