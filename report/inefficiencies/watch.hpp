// The first pass over an event log: what its allocations and frees show, by call site.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "report/model.hpp"
#include "report/pool_view/layout.hpp"

namespace memlab::report {

/// What the allocations of one site showed.
struct SiteWatch {
    std::uint64_t most_live = 0;       ///< held at once
    std::uint64_t largest = 0;         ///< bytes of one
    std::uint64_t replaced_count = 0;  ///< freed right after the next of the same size was made
    std::uint64_t replaced_bytes = 0;
    std::uint64_t outlived_count = 0;  ///< freed in a later step than the one that made it
    std::uint64_t outlived_bytes = 0;
    std::uint64_t outlived_steps = 0;  ///< the sum of how many steps later
    /// Never freed, and older at the end than twice what any other of the site ever was.
    std::uint64_t outstayed_count = 0;
    std::uint64_t outstayed_bytes = 0;
    std::uint64_t rounding_at_peak = 0;
    std::uint64_t count_at_peak = 0;  ///< of what was rounded up
    std::uint64_t unused_count = 0;   ///< lived while the GPU did nothing
    std::uint64_t unused_bytes = 0;
};

/// Bytes of one site that the program could have done without from the event of number `begin` on
/// until that of number `end`, where they were freed.
struct Avoidable {
    enum class Why : std::uint8_t { replaced, outlived, unused, leaked };
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    std::uint64_t bytes = 0;
    std::uint32_t site = 0;
    Why why = Why::replaced;
};

/// The pools of a device when its reserved curve first came to its peak.
struct Growth {
    std::uint64_t time_ns = 0;
    std::vector<LaidSegment> segments;  ///< just before
};

struct Watched {
    std::vector<SiteWatch> sites;      ///< by index into Report::sites
    std::vector<Avoidable> avoidable;  ///< at most `max_avoidable`
    std::uint64_t left_out = 0;        ///< further ones
    std::vector<Growth> growth;        ///< by index into Report::devices; no time: none
    std::uint64_t steps = 0;           ///< that ended
};

/// How many spans of life are kept: 4 million take 128 MiB.
inline constexpr std::size_t max_avoidable = std::size_t{4} << 20;

/// Reads `log`, of which `report` was made. `steps`: index into Report::steps, what ends a step;
/// none: nothing is known of steps.
Watched watch(const Report& report, const std::string& log, std::optional<std::size_t> steps);

}  // namespace memlab::report
