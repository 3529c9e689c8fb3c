// Runs another program and takes what it prints. What hangs or crashes there ends there.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace memlab::report {

/// Environment variables by name and value; an empty value removes the variable.
using ChildVariables = std::vector<std::pair<std::string, std::string>>;

struct ChildOutput {
    int wait_status = -1;    ///< waitpid's; -1: it could not be started
    bool timed_out = false;  ///< it was killed for that
    std::string out;         ///< at most 1 MiB of its standard output
    std::string err;         ///< the same of its standard error
    bool started() const { return wait_status != -1; }
    bool succeeded() const { return wait_status == 0 && !timed_out; }
};

/// Runs `arguments` (the first is a path, or a name that is looked up in PATH) without input, in
/// this process's environment with `variables` changed. With `patience` waits no longer than that
/// and then kills the program and what it started, for which it gets a process group of its own;
/// Ctrl-C does not reach it there. Thread-safety: any thread, but not during setenv(). Throws
/// std::bad_alloc only.
ChildOutput run_child(const std::vector<std::string>& arguments, const ChildVariables& variables,
                      std::optional<std::chrono::milliseconds> patience = {});

}  // namespace memlab::report
