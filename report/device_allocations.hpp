// How many allocations were made on a GPU, whatever kind of memory they were of.
#pragma once

#include <cstdint>

#include "report/model.hpp"
#include "trace/json/bounded_sum.hpp"

namespace memlab::report {

inline std::uint64_t allocations_of(const Device& device) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        add_to(sum, totals.count);
    }
    return sum;
}

}  // namespace memlab::report
