// Shell completion and the man page of memlab-top, which takes options alone.
#pragma once

#include <string>

#include "tools/completion.hpp"

namespace memlab::tools {

/// `kind`: bash, zsh, fish or man; empty for another one.
std::string top_completion(const std::string& kind, const CommandShape& shape);

}  // namespace memlab::tools
