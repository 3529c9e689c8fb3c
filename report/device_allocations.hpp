// The number of allocations on a GPU.
#pragma once

#include <cstdint>

#include "trace/json/bounded_sum.hpp"
#include "trace/json/report.hpp"

namespace memlab::report {

/// Over all kinds of memory, the host's too.
inline std::uint64_t allocation_count(const Device& device) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        add_to(sum, totals.count);
    }
    return sum;
}

/// Of device memory: the kinds that the curves include.
inline std::uint64_t device_memory_allocation_count(const Device& device) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        add_to(sum, is_in_curves(kind) ? totals.count : 0);
    }
    return sum;
}

}  // namespace memlab::report
