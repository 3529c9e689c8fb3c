// Files that a command was told to write.
#pragma once

#include <string>
#include <string_view>

namespace memlab::tools {

/// What to do with a file that is there already.
enum class Taken { refuse, replace };

/// Writes `text` to `path`: a file holds all of it or is as it was, also on a full disk; what a
/// symbolic link names is replaced, not the link; a device or pipe (/dev/stdout) is written to.
/// Empty, or one line saying what is wrong and what to do.
std::string write_output(const std::string& path, std::string_view text, Taken taken);

/// Puts `text` behind what `path` has (a job summary is made of many steps' parts).
std::string append_output(const std::string& path, std::string_view text);

}  // namespace memlab::tools
