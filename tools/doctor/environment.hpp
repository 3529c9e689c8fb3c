// Examines the environment that a command would get: preloads and other tools, options, where files
// go, what a container limits.
#pragma once

#include <string>

#include "interpose/options/option_table.hpp"
#include "tools/doctor/finding.hpp"

namespace memlab::tools {

/// What a process with these variables will read of memlab's options; of duplicates the last one
/// counts.
interpose::LoadedSettings effective_settings(const Variables& variables);

Findings examine_environment(const std::string& library, const Variables& variables);

}  // namespace memlab::tools
