// The segments of a process's pool as lines of text, as memlab-report pool draws them.
#pragma once

#include <string>
#include <vector>

#include "model/live/live_documents.hpp"

namespace memlab::tools {

/// "20.00 MiB   16.09 MiB       2  █████····" of each segment, at most `width` columns: a heading,
/// the rows, what the rest is. Printable.
std::vector<std::string> pool_picture(const model::PoolDocument::Gpu& gpu, std::size_t width,
                                      bool ascii);

}  // namespace memlab::tools
