// The replies of several processes as one JSON document.
#pragma once

#include <string>
#include <vector>

#include "tools/live/documents.hpp"

namespace memlab::tools {

/// {"format": "memlab-replies", "version": 1, "processes": [...]}: of each its id, and its document
/// or the problem; the other is null.
std::string list_json(const std::vector<LiveStatus>& replies);

}  // namespace memlab::tools
