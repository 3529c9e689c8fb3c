// What the tools say about trouble: one line on stderr, "memlab-run: what; what to do". The result
// of a tool (a summary, a report) is not a diagnostic and is printed as it is.
#pragma once

#include <spdlog/logger.h>

namespace memlab::tools {

/// The logger of this program, outside spdlog's registry. Its lines carry the name given to
/// name_program(). Thread-safe. Text from outside (paths, other people's messages) goes through
/// report::printable() first and is passed as an argument, never as the format.
spdlog::logger& diagnostics();

/// Called once, at the start of main.
void name_program(const char* name);

}  // namespace memlab::tools
