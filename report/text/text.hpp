// Padding for tables, and shell quoting.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace memlab::report {

/// Pads with blanks to `width` columns, aligned left or right; longer text stays unchanged.
std::string left(const std::string& text, std::size_t width);
std::string right(const std::string& text, std::size_t width);

/// Quotes `word` for a POSIX shell if necessary.
std::string shell_word(const std::string& word);

/// The arguments as one shell command.
std::string command_line(const std::vector<std::string>& arguments);

}  // namespace memlab::report
