// Shell quoting. What it returns is printable as it is, so that a command that is shown can be
// pasted.
#pragma once

#include <string>
#include <vector>

namespace memlab::report {

/// Quotes `word` for a shell if necessary: as '...', or as $'...' where a terminal would not show
/// what it has (a newline, a control character, with `ascii` all that is not ASCII).
std::string shell_word(const std::string& word, bool ascii = false);

/// The same of a file's path, which is never taken for an option.
std::string shell_file(const std::string& path, bool ascii = false);

/// The arguments as one shell command.
std::string command_line(const std::vector<std::string>& arguments, bool ascii = false);

}  // namespace memlab::report
