// Exports the figures of a run as OpenMetrics text, which Prometheus' textfile collector (node
// exporter) reads, too. All are gauges: the final values of a finished run.
#pragma once

#include "report/export/input.hpp"
#include "trace/json/json_output.hpp"

namespace memlab::exports {

/// May throw std::bad_alloc.
Result write_openmetrics(const Input& input, report::ByteSink& sink);

}  // namespace memlab::exports
