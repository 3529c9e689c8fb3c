// What memlab-run sets so that Python programs name PyTorch's nn.Modules without a call of theirs.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace memlab::tools {

/// MEMLAB_NAMES, and PYTHONPATH (`before` is its value or null) with the folder first whose
/// sitecustomize.py begins memlab's Python package: the program's environment may not have it. It
/// is looked for relative to this program; nothing where it is not, or where PYTHONPATH cannot
/// carry its path.
std::vector<std::pair<std::string, std::string>> python_names(const char* before);

}  // namespace memlab::tools
