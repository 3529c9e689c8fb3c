// Which PyTorch a Python would import, and whether the doors through which memlab reads it are
// where they are known to be: by its files, without running it.
#pragma once

#include <optional>
#include <string>

#include "tools/doctor/finding.hpp"

namespace memlab::tools {

/// What would be read of the PyTorch that this Python 3.`minor` would import; nothing if there is
/// none where one is installed as usual: PYTHONPATH, the interpreter's own folders, the user's.
Findings examine_pytorch(const std::string& interpreter, int minor, const Variables& variables);

/// Whether the class of nodes in the text of node.h or function.h begins as memlab reads it;
/// nothing if the text has no such class.
std::optional<bool> has_known_nodes(const std::string& header);

}  // namespace memlab::tools
