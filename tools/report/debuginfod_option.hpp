// --no-symbols and --debuginfod, for each command that looks names up.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace memlab::tools {

/// Of a command without --no-symbols. Without the option nobody is asked
/// (report/symbols/debuginfod.hpp).
void add_debuginfod(CLI::App& app);

/// --no-symbols and --debuginfod, of which one at most may be given.
void add_symbols(CLI::App& app, bool& no_symbols,
                 const std::string& meaning = "Show module+offset, look nothing up");

/// Says in one line on stderr what the servers did not give, if they were asked and did not.
void note_debuginfod();

}  // namespace memlab::tools
