// memlab-report FOLDER: a run of several processes as a whole.
#pragma once

#include <string>

#include "report/summary/summary.hpp"

namespace memlab::tools {

struct RunShowOptions {
    report::TextOptions text;
    bool json = false;
    bool symbols = true;
};

/// Shows the run whose files lie in `folder`, then the summary of the process with the largest
/// peak. Returns the exit code.
int show_run(const std::string& folder, const RunShowOptions& options);

}  // namespace memlab::tools
