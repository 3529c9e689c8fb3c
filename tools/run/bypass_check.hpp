// memlab-run --fail-on-bypass: did every allocation of the run pass memlab?
#pragma once

#include <string>
#include <vector>

#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// Reads the reports of a run. Empty when each process was audited and nothing bypassed memlab;
/// else one line that says what did, or which process could not be audited and why: what was not
/// looked at has not passed. A run in which nobody used CUDA passes.
std::string bypass_problem(const std::vector<RunFiles>& files);

}  // namespace memlab::tools
