// Text output of out-of-memory failures: requested and available memory, explanation, call stack
// and holders of the memory.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// Ends with a newline. options.top limits the holders; whole stacks are shown for the `stacks`
/// largest.
std::string render_ooms_text(const Summary& summary, Resolver& resolver, const ViewOptions& options,
                             std::size_t stacks);

}  // namespace memlab::report
