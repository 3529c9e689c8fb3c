// Runs a command as if it had been called directly: same process group and terminal, signals that
// are sent to us go to it, and its end is reported exactly. Knows nothing of memlab.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace memlab::tools {

struct LaunchResult {
    /// Not 0: the command could not be started, this is exec's errno (or fork's).
    int start_error = 0;
    pid_t pid = 0;
    int wait_status = 0;  ///< as waitpid gives it; valid when start_error is 0
};

/// Starts `arguments` (the first is looked up in PATH) with `environment` set on top of ours, waits
/// for its end and returns it. Job control is untouched: the child shares our process group, so the
/// terminal's Ctrl-C and Ctrl-Z reach both of us. From the call on, signals that would end us are
/// blocked in this process and passed on to the child, so that we outlive it: what follows (reading
/// its recording) is not cut short either. Call once, from a process without other threads.
LaunchResult launch(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& environment);

/// Ends this process the way the child ended: the same exit code, or the same signal, so that a
/// shell's `$?`, a debugger and a job scheduler see the truth. No second core dump is written.
[[noreturn]] void end_like(int wait_status);

/// "SIGKILL", or "signal 42" where it has no name.
std::string signal_name(int signal);

}  // namespace memlab::tools
