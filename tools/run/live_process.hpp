// Whether a process of the run still runs, and its command line. Since process ids are reused and
// differ between containers, a process is identified by pid, start time and pid namespace.
#pragma once

#include <string>

#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// Whether the process that wrote this manifest line still runs and is not a zombie. A process of
/// another pid namespace is not visible and counts as ended.
bool still_runs(const RunFiles& files);

struct LiveProcess {
    pid_t parent = 0;
    std::string command;         ///< its arguments, on one line
    std::string parent_command;  ///< empty: unknown
};

/// The process's data in /proc; members are empty if unavailable. `with_arguments` false: the
/// commands are program names only.
LiveProcess describe_live(pid_t pid, bool with_arguments);

}  // namespace memlab::tools
