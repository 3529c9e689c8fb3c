// Examines the environment that a command would get: preloads and other tools, options, where files
// go, what a container limits.
#pragma once

#include <string>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

Findings examine_environment(const std::string& library, const Variables& variables);

}  // namespace memlab::tools
