// Renders a pool: a picture of its segments, the blocks that keep them from being released,
// statistics.
#pragma once

#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/pool_view/layout.hpp"
#include "report/symbols/resolver.hpp"
#include "report/text/terminal.hpp"

namespace memlab::report {

struct PoolViewOptions {
    Style style;
    std::size_t top = 10;      ///< segments and call sites per snapshot
    bool all_figures = false;  ///< also the statistics of the small and the large pool
    std::string working_directory;
};

/// Text; ends with a newline. Without snapshots: the figures of the report, and why there are none.
std::string render_pools(const PoolSnapshots& pools, Resolver& resolver,
                         const PoolViewOptions& options);

/// {devices [index, name, memory_stats {key: number}, fragmentation {at_peak, external, internal},
/// moments [what, time_ns, requested_bytes, reserved_bytes, active_bytes, pending_bytes,
/// largest_free_bytes, segments [address, size, blocks [address, size, time_ns, pending,
/// label, label_detail (if it has one), place]]]], stretch (a sentence; only if the log has not
/// all)}.
std::string pools_json(const PoolSnapshots& pools, Resolver& resolver);

}  // namespace memlab::report
