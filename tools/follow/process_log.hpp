// Where a running process has its event log, as it says itself on its control channel.
#pragma once

#include <string>

#include <sys/types.h>

namespace memlab::tools {

/// The log's path for this process, through /proc/PID/root where the two have other folders. Empty:
/// *problem says why, "what; what to do".
std::string log_of_process(pid_t process, std::string* problem);

/// A line on a process that records into that folder and has no event log; empty: there is none.
std::string process_without_log(const std::string& folder);

/// "4711" as a process id, unless a file has that name; 0: it is none.
pid_t process_meant_by(const std::string& argument);

}  // namespace memlab::tools
