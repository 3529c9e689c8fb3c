// What shell completion and man pages of the tools are made of: the tables of options that parse
// the command lines.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace memlab::tools {

struct OptionShape {
    std::string long_name;   ///< without dashes; empty: none
    std::string short_name;  ///< likewise
    std::string value;       ///< "N", "[=NAMES]"; empty: it takes none
    std::string what;

    /// Whether the value is optional, and part of the option's word.
    bool has_attached_value() const { return value.starts_with("[="); }
    /// "-o", "--output": those that it has.
    std::vector<std::string> words() const;
};

struct CommandShape {
    std::string name;
    std::string what;         ///< in few words
    std::string description;  ///< in sentences
    std::string arguments;    ///< "FILE..."
    std::string footer;
    std::vector<OptionShape> options;
};

/// Description, arguments, footer and options of a command line, without those that --help hides.
CommandShape shape_of(const CLI::App& app);

/// `text` with each `what` replaced.
std::string replaced(std::string text, std::string_view what, std::string_view by);

/// "--output --option": for bash.
std::string names_of(const CommandShape& command);

/// Inside of '...' in a description of zsh's _arguments or _describe.
std::string zsh_word(const std::string& text);
/// The options as arguments of zsh's _arguments: " \", a new line and '...' for each.
std::string zsh_options(const CommandShape& command);

/// In '...'.
std::string fish_word(const std::string& text);
/// A line for each option of `program`, offered while `condition`, a command of fish, is true.
std::string fish_options(const std::string& program, const std::string& condition,
                         const CommandShape& command);

/// Text of a man page: a line does not begin a request, a hyphen is one that can be copied.
std::string man_text(const std::string& text);
std::string man_options(const CommandShape& command);
/// The footer of --help: paragraphs, and lines that begin with a blank as they are.
std::string man_footer(const std::string& text);

}  // namespace memlab::tools
