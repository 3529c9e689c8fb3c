// Failures for lack of memory that a reader would take for the same.
#pragma once

#include <cstddef>
#include <vector>

#include "report/summary/summary.hpp"

namespace memlab::report {

/// Failures that read alike: the same call at the same place of one device, explained in the same
/// words, whatever the figures.
struct AlikeFailures {
    std::vector<std::size_t> ooms;  ///< indexes into Summary::ooms, in order
};
std::vector<AlikeFailures> group_failures(const Summary& summary);

}  // namespace memlab::report
