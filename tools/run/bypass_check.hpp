// memlab-run --fail-on-bypass: checks that no allocation of the run bypassed memlab.
#pragma once

#include <string>
#include <vector>

#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// Reads the reports of a run. Empty if each process was audited without a bypass; else one line
/// with the bypass, or with the process that was not audited and why, which also fails. A run
/// without CUDA passes.
std::string bypass_problem(const std::vector<RunFiles>& files);

}  // namespace memlab::tools
