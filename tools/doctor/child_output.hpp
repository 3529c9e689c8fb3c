// Runs a program and takes what it prints, so that what hangs or crashes there ends there.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

struct ChildOutput {
    int wait_status = -1;    ///< waitpid's; -1: it could not be started
    bool timed_out = false;  ///< it was killed for that
    std::string out;         ///< at most 1 MiB of its standard output
    std::string err;         ///< the same of its standard error
    bool succeeded() const { return wait_status == 0 && !timed_out; }
};

/// Runs `arguments` (the first is a path) without input and with `variables` added to this
/// process's environment; one with an empty value is removed. Waits for `patience` at most.
ChildOutput run_child(const std::vector<std::string>& arguments, const Variables& variables,
                      std::chrono::milliseconds patience);

}  // namespace memlab::tools
