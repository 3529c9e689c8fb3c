// Whom memlab-ctl asks: a process, the processes of a run, or the only one that there is.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include <sys/types.h>

#include "tools/live/run_processes.hpp"

namespace memlab::tools {

/// What memlab-ctl ends with at once: one line.
struct ControlError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// The processes that record into the folder of a run. Throws ControlError: there are none.
std::vector<pid_t> processes_of_run(const std::string& folder);

}  // namespace memlab::tools
