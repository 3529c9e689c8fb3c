// Common parts of memlab-report's commands: argument parsing, errors, exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

#include "report/text/terminal.hpp"

namespace memlab::tools {

inline constexpr int exit_bad_input = 2;

/// Prints `what` in one line on stderr, after flushing standard output; returns the exit code.
int fail(const std::string& what);

/// run(); where the host lacks the memory it fails, and says to do `what` with the file on a larger
/// machine. Returns the exit code.
int with_memory_for(const std::string& file, const std::function<int()>& run,
                    const char* what = "read it");

/// Flushes standard output; returns `code`, or exit_bad_input if it could not be written.
int flush_output(int code);

/// --color and --ascii.
struct StyleOptions {
    std::string color = "auto";
    bool ascii = false;
    std::size_t width = 0;  ///< 0: not given
    bool uncut = false;     ///< lines are never cut
};

/// While `run` runs, parse() shows the command to `visit` and ends it, without parsing.
void inspect(const std::function<void(const CLI::App&)>& visit, const std::function<void()>& run);

/// The name that `word` is closest to, if a typing error can have made it of that; else empty.
std::string closest(const std::string& word, const std::vector<std::string>& names);

/// Adds --color, --ascii and --width.
void add_style_options(CLI::App& app, StyleOptions& style);

/// The style for standard output.
report::Style make_style(const StyleOptions& style);

/// "peak, bytes or count"
std::string alternatives(const std::vector<std::string>& words);

/// Validators for CLI11; they return an empty text, or what is accepted. Unlike CLI11's own they
/// have readable messages, and the first rejects -1.
std::string check_whole_number(const std::string& text);
std::function<std::string(const std::string&)> one_of(const std::vector<std::string>& words);

/// Adds an option that may be repeated, with one value each: the next argument is not taken for a
/// further value.
CLI::Option* add_repeated(CLI::App& app, const std::string& name, std::vector<std::string>& values,
                          const std::string& what);
/// The same, with the values passed to `take`.
CLI::Option* add_repeated(CLI::App& app, const std::string& name,
                          const std::function<void(const std::vector<std::string>&)>& take,
                          const std::string& what);

/// The program must end: help was shown, or the arguments are wrong.
struct Ended {
    int code;
};

/// Sets up --help and parses the arguments. The app's name is the command as typed ("memlab-report
/// merge"). Throws Ended.
void parse(CLI::App& app, int argc, char** argv);

/// The current directory; empty if it cannot be determined.
std::string working_directory();

}  // namespace memlab::tools
