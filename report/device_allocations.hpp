// The number of allocations on a GPU.
#pragma once

#include <cstdint>

#include "model/bounded_sum.hpp"
#include "model/report.hpp"

namespace memlab::report {

enum class Counted : std::uint8_t {
    all_kinds,      ///< of memory, the host's too
    device_memory,  ///< the kinds that the curves include
};

inline std::uint64_t allocation_count(const model::Device& device, Counted counted) {
    std::uint64_t sum = 0;
    for (const auto& [kind, totals] : device.kinds) {
        model::add_to(
            sum, counted == Counted::all_kinds || model::is_in_curves(kind) ? totals.count : 0);
    }
    return sum;
}

}  // namespace memlab::report
