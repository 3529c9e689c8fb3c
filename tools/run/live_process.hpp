// Whether a process of the run still lives, and what it is. A process id is used again and means
// another process in another container; the start time and the namespace tell.
#pragma once

#include <string>

#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// True when the process that wrote this line of the manifest runs: the same one, not a zombie. One
/// of another pid namespace cannot be seen from here and counts as ended.
bool still_runs(const RunFiles& files);

struct LiveProcess {
    pid_t parent = 0;
    std::string command;         ///< its arguments, on one line
    std::string parent_command;  ///< empty when it cannot be seen
};

/// What /proc says of a process that runs; empty members where it does not.
LiveProcess describe_live(pid_t pid);

}  // namespace memlab::tools
