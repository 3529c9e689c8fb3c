// What memlab-top knows, as OpenMetrics text (or the older one of Prometheus, version 0.0.4). Pure.
//
// The number of series is bounded: a process has a fixed set for each GPU, nn.Modules are summed to
// a depth of their names, and what is beyond the largest of these is one series of its own.
#pragma once

#include <cstddef>
#include <string>

#include "tools/top/details.hpp"
#include "tools/top/history.hpp"

namespace memlab::tools {

struct MetricsOptions {
    bool open_metrics = true;         ///< else version 0.0.4
    std::size_t nn_module_depth = 2;  ///< "encoder.layers" of "encoder.layers.3.linear"; 0: none
    std::size_t most_nn_modules = 32;
    bool arguments = true;   ///< else no script's name
    bool anonymize = false;  ///< no host, container, and no UUID that is known elsewhere
};

std::string render_metrics(const History& history, const DetailsOf& details,
                           const MetricsOptions& options);

/// "encoder.layers" of "encoder.layers.3.linear" at depth 2.
std::string nn_module_at_depth(const std::string& name, std::size_t depth);

}  // namespace memlab::tools
