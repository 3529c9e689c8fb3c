// Writes a report's file. A file of that name is never half written: the text goes to a temporary
// file beside it, which is then renamed. Runs inside other people's programs at exit, so it uses
// neither stdio nor locales, throws nothing and raises no signal (RLIMIT_FSIZE).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace memlab::trace {
class Aggregator;
}

namespace memlab::model {

/// What to do when the report's file exists.
enum class Existing : std::uint8_t {
    refuse,   ///< fail with EEXIST, so that two processes never share a file
    replace,  ///< replace it atomically
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

/// Writes `text`, a report, in the same way. Never throws.
WriteResult write_text(std::string_view text, const std::string& path, Existing existing);

}  // namespace memlab::model
