// The tools' diagnostics: one line on stderr, "memlab-run: what; what to do". A tool's result (a
// summary, a report) is not a diagnostic and is printed as is.
#pragma once

#include <string>
#include <vector>

namespace memlab::tools {

/// Prints `line` behind the name given to set_program_name(). Thread-safe. Untrusted text (paths,
/// messages of others) must be passed through report::printable().
void print_diagnostic(const std::string& line);

/// From now on lines are added to `lines` instead of being printed; null: they are printed.
/// Thread-safety: none.
void collect_diagnostics(std::vector<std::string>* lines);

/// Call once, at the start of main.
void set_program_name(const char* name);

}  // namespace memlab::tools
