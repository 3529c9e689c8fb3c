// A pool's segments as a picture, what keeps them from being given back, and its statistics.
#pragma once

#include <string>
#include <vector>

#include "report/model.hpp"
#include "report/pool_view/layout.hpp"
#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct PoolViewOptions {
    Style style;
    std::size_t top = 10;      ///< segments and call sites of a moment
    bool all_figures = false;  ///< the statistics of the small and the large pool, too
    std::string working_directory;
};

/// For people; ends with a newline. Without moments the figures of the report are shown, and why
/// there is no more.
std::string render_pools(const std::vector<PoolOfDevice>& pools, Resolver& resolver,
                         const PoolViewOptions& options);

/// {devices [index, name, memory_stats {key: number}, fragmentation {at_peak, external, internal},
/// moments [what, time_ns, requested_bytes, reserved_bytes, active_bytes, pending_bytes,
/// largest_free_bytes, segments [address, size, blocks [address, size, time_ns, pending,
/// place]]]]}.
std::string pools_json(const std::vector<PoolOfDevice>& pools, Resolver& resolver);

}  // namespace memlab::report
