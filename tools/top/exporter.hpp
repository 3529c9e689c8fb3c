// memlab-top --listen: metrics of every process over HTTP, until a signal ends it.
#pragma once

#include <chrono>
#include <string>

#include "tools/top/metrics.hpp"

namespace memlab::tools {

struct ExporterOptions {
    std::string address;
    std::chrono::milliseconds interval{5000};
    MetricsOptions metrics;
};

/// Returns the exit code: 0 after SIGINT or SIGTERM; 2: it cannot listen there, which it says.
int run_exporter(const ExporterOptions& options);

}  // namespace memlab::tools
