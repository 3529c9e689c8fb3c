// The text of a source file, and where a function in it begins and ends.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace memlab::report {

struct SourceText {
    std::vector<std::string> lines;  ///< line 1 is lines[0]; tabs are blanks, no line ends
    std::string problem;             ///< why there are none: "no such file"; empty: all is well
    std::int64_t modified_ns = 0;    ///< since the Unix epoch
};

/// Where to read the source that a recording knows as `path`: there, or below one of `folders`,
/// under the longest end of its path that is found ("src/model.py", "model.py"); `path` when it is
/// nowhere.
std::string find_source(const std::string& path, const std::vector<std::string>& folders);

/// At most 64 MiB; a larger file, or one that is no text, is a problem. Never throws but
/// std::bad_alloc.
SourceText read_source(const std::string& path);

struct LineRange {
    int first = 0;
    int last = 0;
};

/// The lines of the Python function whose code begins at `first_line` (at its first decorator, as
/// co_firstlineno has it): up to the last line that is indented more than its `def`. `covered` is
/// the last line that is known to belong to it.
LineRange python_function(const SourceText& source, int first_line, int covered);

/// For other languages: the lines from `first` to `last`, and some around them, but no further than
/// blank lines at the outermost level.
LineRange surroundings(const SourceText& source, int first, int last);

}  // namespace memlab::report
