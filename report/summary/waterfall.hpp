// The memory of a GPU at the allocated peak in levels, from the driver's used memory down to the
// requested bytes. Exact except for device_used, which is a sample of the whole GPU: the remainder
// above `reserved` includes contexts and modules, but also other processes. In reports of older
// versions the curves are known per timeline bucket only (each value is the maximum within it).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "model/report.hpp"

namespace memlab::report {

/// Bytes. reserved >= active >= allocated >= requested.
struct Waterfall {
    std::uint64_t time_ns = 0;    ///< of the allocated peak
    bool is_exact = false;        ///< else the highest values within `within_ns`
    std::uint64_t within_ns = 0;  ///< the bucket's width
    /// With what was reserved since the last sample, where a ledger says it. None if there was no
    /// sample yet, or it is less than `reserved` because it is older.
    std::optional<std::uint64_t> device_used;
    std::uint64_t reserved = 0;
    std::uint64_t active = 0;
    std::uint64_t allocated = 0;
    std::uint64_t requested = 0;
    /// The part of `allocated` that the driver served directly, by kind. Exact, at the peak.
    std::map<std::string, std::uint64_t> outside_pool;
};

/// None for a device without memory or timeline.
std::optional<Waterfall> make_waterfall(const model::Report& report, const model::Device& device);

}  // namespace memlab::report
