// The end of memlab-run, after the command: completes the reports and prints on stderr what was
// recorded and where.
#pragma once

#include <string>
#include <vector>

#include "tools/run/launch.hpp"
#include "tools/run/run_file.hpp"
#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

struct RunReportOptions {
    bool summary = true;       ///< print the figures, not only the files
    bool quiet = false;        ///< print errors only
    bool arguments = true;     ///< print command lines, not only program names
    std::string switched_off;  ///< the setting by which nothing is recorded; empty: none
    std::string working_directory;
    std::string folder;               ///< the run's own; empty: none
    std::uint64_t start_wall_ns = 0;  ///< of the command
    std::uint64_t end_wall_ns = 0;
};

/// For each process without a JSON report (killed, _exit, exec) makes one from its log, with the
/// command's exit status if it applies; never overwrites, never leaves a partial file. Then prints
/// summaries, largest first, and the processes that still run. Returns all processes in the order
/// in which they started recording.
std::vector<RunProcess> report_run(const std::vector<RunFiles>& files, const LaunchResult& result,
                                   const RunReportOptions& options);

}  // namespace memlab::tools
