// The number of allocations on a GPU.
#pragma once

#include <cstdint>

#include "trace/json/bounded_sum.hpp"
#include "trace/json/report.hpp"

namespace memlab::report {

enum class Counted : std::uint8_t {
    all_kinds,      ///< of memory, the host's too
    device_memory,  ///< the kinds that the curves include
};

inline std::uint64_t allocation_count(const Device& device, Counted counted) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        add_to(sum, counted == Counted::all_kinds || is_in_curves(kind) ? totals.count : 0);
    }
    return sum;
}

}  // namespace memlab::report
