// One sample of memlab-top as JSON, for scripts.
#pragma once

#include <string>

#include "tools/top/details.hpp"
#include "tools/top/history.hpp"

namespace memlab::tools {

/// Of History::latest(): GPUs, processes with their growth, call sites and nn.Modules. Indented, no
/// final newline.
std::string render_top_json(const History& history, const DetailsOf& details, bool arguments);

}  // namespace memlab::tools
