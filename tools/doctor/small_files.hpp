// The text of small files, /proc's most of all.
#pragma once

#include <string>
#include <string_view>

namespace memlab::tools {

/// Empty if it cannot be read.
std::string whole_file(const std::string& path);

/// Without its end; empty if it cannot be read.
std::string first_line(const std::string& path);

/// The value of a line "name:\tvalue" in /proc/`process`/status; empty: none.
std::string status_value(const std::string& process, std::string_view name);

}  // namespace memlab::tools
