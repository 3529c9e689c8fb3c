// memlab-report FOLDER: a run of several processes as a whole; memlab-report merge: its ranks side
// by side.
#pragma once

#include <string>

#include "report/summary.hpp"

namespace memlab::tools {

struct RunShowOptions {
    report::TextOptions text;
    bool json = false;
    bool symbols = true;
};

/// Shows the run whose files lie in `folder`, then the summary of the process with the largest
/// peak. Returns the exit code.
int show_run(const std::string& folder, const RunShowOptions& options);

/// `memlab-report merge FILE|FOLDER...`; argv[0] is "merge". Returns the exit code.
int merge_command(int argc, char** argv);

}  // namespace memlab::tools
