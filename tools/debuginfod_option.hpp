// --debuginfod, for each command that looks names up.
#pragma once

#include <CLI/CLI.hpp>

namespace memlab::tools {

/// Without the option nobody is asked (report/debuginfod.hpp). To be added after --no-symbols,
/// which it contradicts.
void add_debuginfod(CLI::App& app);

/// Says in one line on stderr what the servers did not give, if they were asked and did not.
void note_debuginfod();

}  // namespace memlab::tools
