// Runs a command transparently: same process group and terminal, signals are forwarded, and its
// exit status is passed on exactly. Independent of memlab.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace memlab::tools {

struct LaunchResult {
    /// errno of exec or fork if the command could not be started; else 0.
    int start_error = 0;
    pid_t pid = 0;
    int wait_status = 0;  ///< waitpid's; valid if start_error is 0
};

/// Starts `arguments` (the first is looked up in PATH) with `environment` added to this process's,
/// and waits for its end. Job control works: the child shares our process group, so Ctrl-C and
/// Ctrl-Z reach both. From the call on, terminating signals are blocked in this process and
/// forwarded to the child, so that we outlive it and can process its recording. Orphans that this
/// process inherits, as pid 1 of a container, are reaped meanwhile. Call once, from a
/// single-threaded process.
LaunchResult launch(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& environment);

/// Ends this process the way the child ended, by the same exit code or signal, for shells,
/// debuggers and job schedulers. Does not write a second core dump.
[[noreturn]] void end_like(int wait_status);

/// "SIGKILL", or "signal 42" if it has no name.
std::string signal_name(int signal);

}  // namespace memlab::tools
