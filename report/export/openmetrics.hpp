// The figures of a run as metrics: OpenMetrics text that Prometheus' textfile collector (node
// exporter) takes as well. All are gauges, since a run is over when it is written: what it came to.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// May throw std::bad_alloc.
Result write_openmetrics(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
