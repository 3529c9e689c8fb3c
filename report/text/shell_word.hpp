// Shell quoting.
#pragma once

#include <string>
#include <vector>

namespace memlab::report {

/// Quotes `word` for a POSIX shell if necessary.
std::string shell_word(const std::string& word);

/// The arguments as one shell command.
std::string command_line(const std::vector<std::string>& arguments);

}  // namespace memlab::report
