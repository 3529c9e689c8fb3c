// Reads source files and finds the lines of a function.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace memlab::report {

struct SourceText {
    std::vector<std::string> lines;  ///< line 1 is lines[0]; tabs expanded, without line ends
    std::string problem;             ///< why it could not be read: "no such file here"; or empty
    std::int64_t modified_ns = 0;    ///< since the Unix epoch
};

/// Finds the source with the recorded path `path`: there, or below one of `folders` under the
/// longest matching suffix of the path ("src/model.py", "model.py"); `path` when there is none.
std::string find_source(const std::string& path, const std::vector<std::string>& folders);

/// Reads at most 64 MiB; larger or binary files set `problem`. Throws std::bad_alloc only.
SourceText read_source(const std::string& path);

struct LineRange {
    int first = 0;
    int last = 0;
};

/// The lines of the Python function with co_firstlineno `first_line` (the first decorator): up to
/// the last line that is indented more than its `def`. `covered`: the last line known to belong to
/// it.
LineRange python_function(const SourceText& source, int first_line, int covered);

/// For other languages: the lines from `first` to `last` and some context, which ends at blank
/// lines at the outermost level.
LineRange surroundings(const SourceText& source, int first, int last);

}  // namespace memlab::report
