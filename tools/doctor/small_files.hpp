// The text of small files, /proc's most of all.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

/// Empty if it cannot be read.
std::string whole_file(const std::string& path);

/// Without its end; empty if it cannot be read.
std::string first_line(const std::string& path);

/// The value of a line "name:\tvalue" in /proc/`process`/status; empty: none.
std::string status_value(const std::string& process, std::string_view name);

/// What is in /proc/PID/stat.
struct ProcessStat {
    std::string name;
    std::vector<std::string> fields;  ///< from the third, the state, to the start time: 20, or none
};

/// Of the process with this folder in /proc; empty if it cannot be read.
ProcessStat process_stat(const std::string& folder);

/// The arguments of the process with this folder in /proc, on one line; `with_arguments` false: the
/// first alone. Empty if they cannot be read.
std::string command_line_of(const std::string& folder, bool with_arguments = true);

/// The names in a folder, with "." and ".."; empty if it cannot be read.
std::vector<std::string> entries_of(const std::string& folder);

}  // namespace memlab::tools
