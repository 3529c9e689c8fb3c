// What memlab-report's commands have in common: how they read their arguments, how they fail, and
// how they end.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"

namespace memlab::tools {

inline constexpr int exit_bad_input = 2;

/// Says `what` in one line on stderr, behind all that was shown so far, also where both go to one
/// file; the exit code.
int fail(const std::string& what);

/// The exit code, or that of a failure when standard output does not take what was written to it.
int flushed(int code);

/// How text is to look.
struct Looks {
    std::string color = "auto";
    bool ascii = false;
};

/// Adds --color and --ascii.
void add_looks(CLI::App& app, Looks& looks);

/// For standard output.
report::Style style_of(const Looks& looks);

/// A check for CLI11, whose own name types and ranges in its words and take -1 for a large number:
/// empty, or what is taken.
std::string whole_number(const std::string& text);

/// Adds an option that may be given again and again, with one value each time: what follows the
/// value is not taken for another.
CLI::Option* add_repeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                          const std::string& what);
/// The same, for values that `take` puts elsewhere.
CLI::Option* add_repeated(CLI::App& app, const std::string& name,
                          const std::function<void(const std::vector<std::string>&)>& take,
                          const std::string& what);

/// The layout of --help; then reads the arguments. `command` is what was typed ("memlab-report
/// merge"). Nothing when the program shall go on, else its exit code.
std::optional<int> parse(CLI::App& app, int argc, char** argv, const std::string& command);

/// Empty when it has none.
std::string working_directory();

}  // namespace memlab::tools
