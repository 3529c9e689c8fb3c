// The tools' diagnostics: one line on stderr, "memlab-run: what; what to do". A tool's result (a
// summary, a report) is not a diagnostic and is printed as is.
#pragma once

#include <spdlog/logger.h>

namespace memlab::tools {

/// The program's logger, outside of spdlog's registry. Lines are prefixed with the name given to
/// set_program_name(). Thread-safe. Untrusted text (paths, messages of others) must be passed
/// through report::printable(), and as an argument, never as the format.
spdlog::logger& diagnostics();

/// Call once, at the start of main.
void set_program_name(const char* name);

}  // namespace memlab::tools
