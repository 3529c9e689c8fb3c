// The number of allocations on a GPU, over all kinds of memory.
#pragma once

#include <cstdint>

#include "trace/json/bounded_sum.hpp"
#include "trace/json/report.hpp"

namespace memlab::report {

inline std::uint64_t allocation_count(const Device& device) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        add_to(sum, totals.count);
    }
    return sum;
}

}  // namespace memlab::report
