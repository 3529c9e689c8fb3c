// When the processes of a run started, on one clock.
//
// CLOCK_MONOTONIC is one clock for all processes of a machine, while somebody may set its wall
// clock; the wall clocks of several machines are the only ones that they share. A log knows both.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace memlab::report {

struct ProcessStart {
    std::string machine;              ///< equal for processes on one machine
    std::uint64_t start_wall_ns = 0;  ///< Unix time
    std::optional<std::uint64_t> start_monotonic_ns;
};

/// The Unix times of the starts. Those of a machine are apart as its monotonic clock says, if all
/// that know it agree on when it booted, to a second; else as its wall clock says.
std::vector<std::uint64_t> common_starts(const std::vector<ProcessStart>& processes);

}  // namespace memlab::report
