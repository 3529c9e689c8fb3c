// Writes the report (docs/report-format.md) of an Aggregator. It is the only part of report/ that
// the preload library links: it runs inside other people's programs at exit, so it uses neither
// stdio nor locales, throws nothing, raises no signal (RLIMIT_FSIZE), and streams through a small
// buffer instead of building the text in memory.
//
// The same figures give the same bytes: nothing depends on the clock, the environment or the order
// of a hash table.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::report {

/// What to do when the report's name is taken.
enum class Existing : std::uint8_t {
    refuse,   ///< fail with EEXIST: never two processes in one file
    replace,  ///< put the new report in its place, atomically
};

/// When a report is made.
enum class Moment : std::uint8_t {
    end,      ///< of the recording, wherever that is
    running,  ///< a snapshot: the process lives on
};

struct WriteResult {
    std::string error;     ///< empty on success; else one sentence with the path and the reason
    int error_number = 0;  ///< errno of the failure: EEXIST when the name is taken
    std::uint64_t bytes = 0;

    bool ok() const { return error.empty(); }
};

/// Writes the report under a temporary name beside `path` and renames it: `path` either holds the
/// whole report or is as it was. Never throws. Thread-safety: the aggregator must not change
/// meanwhile. `mode`, less the umask, says who may read it.
WriteResult write_report(const trace::Aggregator& aggregator, const std::string& path,
                         Existing existing = Existing::refuse, unsigned mode = 0666);

/// The same text to an open descriptor, from its position on. It stays open.
WriteResult write_report(const trace::Aggregator& aggregator, int descriptor);

/// The same text in memory. May throw std::bad_alloc.
std::string report_to_string(const trace::Aggregator& aggregator, Moment moment = Moment::end);

/// Writes `text`, a report, as write_report() does. Never throws.
WriteResult write_text(std::string_view text, const std::string& path, Existing existing);

}  // namespace memlab::report
