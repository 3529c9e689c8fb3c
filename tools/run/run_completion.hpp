// Shell completion and the man page of memlab-run.
#pragma once

#include <span>
#include <string>

#include "interpose/options/option_table.hpp"
#include "tools/completion.hpp"

namespace memlab::tools {

/// `kind`: bash, zsh, fish or man; empty for another one. The words of the command that is run are
/// completed as the command's own. `options`: of the environment, for the man page.
std::string run_completion(const std::string& kind, const CommandShape& shape,
                           std::span<const interpose::OptionDef> options);

}  // namespace memlab::tools
