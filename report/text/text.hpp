// Pieces of tables and of command lines, for people.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace memlab::report {

/// Filled with blanks to `width` columns, set left or right; longer text stays as it is.
std::string left(const std::string& text, std::size_t width);
std::string right(const std::string& text, std::size_t width);

/// A word that a shell takes as it is, or a quoted one.
std::string shell_word(const std::string& word);

/// Arguments as one would type them.
std::string command_line(const std::vector<std::string>& arguments);

}  // namespace memlab::report
