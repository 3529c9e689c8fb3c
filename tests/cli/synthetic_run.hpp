// Writes the log of a synthetic training run of any size: for benchmarks, fuzzers, and reports of
// ten million events.
//
// The memory is served by memlab's own pool on a simulated device, so that segments, completions
// and reuse are as in a real log, and the log replays exactly. A run has steps (a scope, with
// forward and backward inside, and a mark behind each); in a step every layer allocates, a third of
// the blocks are temporary, the rest is freed in the opposite order on the way back; weights stay;
// one site leaks 4 KiB a step.
#pragma once

#include <cstdint>
#include <optional>

#include "trace/record_sink.hpp"

namespace memlab::test {

struct SyntheticRun {
    std::uint64_t events = 100'000;  ///< the run stops at the first step's end behind so many
    std::uint32_t sites = 1000;      ///< 1 at least
    std::uint64_t seed = 1;
    std::uint32_t pid = 4711;
    /// If there is one: ranks of a seed have the same call sites and sizes, eight ranks share a
    /// host, each has a GPU of its own, and all run a little differently.
    std::optional<std::uint32_t> rank;
    std::uint32_t world_size = 0;
};

/// Writes the whole log. The same run gives the same bytes.
void write_synthetic_run(const SyntheticRun& run, trace::RecordSink& log);

}  // namespace memlab::test
