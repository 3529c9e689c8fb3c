// The table of the formats of memlab-report export.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/json_output.hpp"
#include "report/exports/input.hpp"

namespace memlab::report::exports {

// One writer for each format, described in its source. Each may throw std::bad_alloc.

Result write_csv(const Input& input, model::ByteSink& sink);
Result write_folded(const Input& input, model::ByteSink& sink);
Result write_openmetrics(const Input& input, model::ByteSink& sink);
struct MetricsProcess {
    const model::Report* report;
    std::vector<Lack> lacks;  ///< its own, and those of its run
};
/// The same of several processes, which have their process id and host as labels, too.
Result write_openmetrics_of_run(const std::vector<MetricsProcess>& processes,
                                std::optional<std::uint64_t> device, model::ByteSink& sink);
Result write_perfetto(const Input& input, model::ByteSink& sink);
Result write_pprof(const Input& input, model::ByteSink& sink);
Result write_pytorch(const Input& input, model::ByteSink& sink);
Result write_speedscope(const Input& input, model::ByteSink& sink);

struct Format {
    std::string_view name;
    std::string_view what;  ///< description for --help
    Result (*write)(const Input& input, model::ByteSink& sink);
    bool needs_log = false;   ///< a report alone is not enough
    bool binary = false;      ///< not to be written to a terminal
    bool weighs = false;      ///< uses Input::by
    bool filters = true;      ///< uses Input::filter
    bool of_events = false;   ///< Input::filter selects events of a log
    bool one_device = false;  ///< cannot express a GPU's index
    bool compares = false;    ///< uses Input::before
    bool of_runs = false;     ///< of several processes, too
};

inline constexpr std::array formats = {
    Format{.name = "csv",
           .what = "RMM's log",
           .write = write_csv,
           .needs_log = true,
           .of_events = true,
           .one_device = true},
    Format{.name = "folded",
           .what = "folded stacks: flamegraph.pl, inferno",
           .write = write_folded,
           .weighs = true,
           .compares = true},
    Format{.name = "openmetrics",
           .what = "metrics for Prometheus",
           .write = write_openmetrics,
           .filters = false,
           .of_runs = true},
    Format{.name = "perfetto",
           .what = "a trace for https://ui.perfetto.dev",
           .write = write_perfetto,
           .binary = true,
           .of_events = true,
           .of_runs = true},
    Format{.name = "pprof",
           .what = "a profile for go tool pprof",
           .write = write_pprof,
           .binary = true,
           .weighs = true},
    Format{.name = "pytorch",
           .what = "for https://pytorch.org/memory_viz",
           .write = write_pytorch,
           .needs_log = true,
           .binary = true,
           .of_events = true},
    Format{.name = "speedscope",
           .what = "for https://speedscope.app",
           .write = write_speedscope,
           .weighs = true},
};

}  // namespace memlab::report::exports
