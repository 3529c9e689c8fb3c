// From what the driver shows of a GPU down to what the program asked for: where each byte went, at
// the allocated peak. Only what a report holds: curves are known by the bucket of the timeline
// (each figure is the most within it), and device_used is a sample of the whole GPU, so that what
// is not the program's memory is a remainder: contexts and modules, but other processes too.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "report/model.hpp"

namespace memlab::report {

/// Bytes. reserved >= active >= allocated >= requested.
struct Waterfall {
    std::uint64_t time_ns = 0;    ///< of the allocated peak
    std::uint64_t within_ns = 0;  ///< the bucket's width
    /// Missing where there was no sample by then, or the last one is older than what was reserved
    /// since, and so less.
    std::optional<std::uint64_t> device_used;
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;
    std::uint64_t allocated = 0;
    std::uint64_t requested = 0;
    /// Of what is allocated, by kind: served by the driver itself. Exact, at the peak.
    std::map<std::string, std::uint64_t> outside_pool;
};

/// Nothing for a device without memory or timeline.
std::optional<Waterfall> waterfall_of(const Report& report, const Device& device);

}  // namespace memlab::report
