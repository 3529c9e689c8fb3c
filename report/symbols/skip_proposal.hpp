// When a wrapper of the program's own stands for most of a table, its callers are the places that a
// user looks for: the --skip that shows them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/symbols/resolver.hpp"

namespace memlab::report {

struct SkipProposal {
    std::string pattern;     ///< "func=DeviceBuffer::DeviceBuffer"
    std::size_t places = 0;  ///< that it shows instead

    /// A whole sentence.
    std::string text() const;
};

/// `stacks`: those of one place, with their bytes. None unless the place is most of `all_bytes` and
/// the proposal shows several named places, none of which is most of it again.
std::optional<SkipProposal> propose_skip(
    Resolver& resolver, const std::vector<std::pair<std::size_t, std::uint64_t>>& stacks,
    std::uint64_t all_bytes);

}  // namespace memlab::report
