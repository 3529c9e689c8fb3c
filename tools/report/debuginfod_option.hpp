// --no-symbols and --debuginfod, for each command that resolves names.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace memlab::tools {

/// --debuginfod alone. Without the option no server is queried (report/symbols/debuginfod.hpp).
void add_debuginfod(CLI::App& app);

/// --no-symbols and --debuginfod, which are mutually exclusive.
void add_symbols(CLI::App& app, bool& no_symbols,
                 const std::string& meaning = "Look up no symbols; show module+offset");

/// Reports failed debuginfod queries, if any, in one line on stderr.
void note_debuginfod();

}  // namespace memlab::tools
