// A pool's segments as a picture, what keeps them from being given back, and its statistics.
#pragma once

#include <string>
#include <vector>

#include "report/model.hpp"
#include "report/pool_view/layout.hpp"
#include "report/resolver.hpp"
#include "report/terminal.hpp"

namespace memlab::report {

struct PoolViewOptions {
    Style style;
    std::size_t top = 10;      ///< segments and call sites of a moment
    bool all_figures = false;  ///< the statistics of the small and the large pool, too
    std::string working_directory;
};

/// One device. `moments` may be empty: then only the figures of the report are shown, and why.
std::string render_pool(const Device& device, const std::vector<PoolMoment>& moments,
                        Resolver& resolver, const PoolViewOptions& options);

/// {index, name, memory_stats {key: number}, fragmentation {at_peak, external, internal},
/// moments [{what, time_ns, requested_bytes, reserved_bytes, active_bytes, pending_bytes,
/// largest_free_bytes, segments [{address, size, blocks [{address, size, time_ns, pending,
/// place}]}]}]}.
std::string pool_json(const Device& device, const std::vector<PoolMoment>& moments,
                      Resolver& resolver);

}  // namespace memlab::report
