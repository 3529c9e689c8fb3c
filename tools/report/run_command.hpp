// memlab-report FOLDER: the summary of a run of several processes.
#pragma once

#include <string>

#include "report/summary/summary.hpp"

namespace memlab::tools {

struct RunShowOptions {
    report::TextOptions text;
    bool json = false;
    bool symbols = true;
    report::FrameSkips skips{};
    report::RecordingReader reader{};  ///< of a run that is followed
};

/// Shows the run with files in `folder`, then the summary of the process with the largest peak.
/// Returns the exit code.
int show_run(const std::string& folder, const RunShowOptions& options);

}  // namespace memlab::tools
