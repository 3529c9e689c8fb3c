// The allocations that failed, one after the other: what was asked for, what there was, why it did
// not fit, which call it was and who held the memory.
#pragma once

#include <cstddef>
#include <string>

#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "report/views/site_table.hpp"

namespace memlab::report {

/// The failures of `summary` for people; ends with a newline. options.top bounds the holders,
/// `stacks` whole stacks of the largest ones are shown.
std::string render_ooms_text(const Summary& summary, Resolver& resolver, const ViewOptions& options,
                             std::size_t stacks);

}  // namespace memlab::report
