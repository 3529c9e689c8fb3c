// A lower bound of reserved memory, and an offline packing with known lifetimes.
//
// The lower bound is the peak of live memory. Packing with all lifetimes known in advance is
// dynamic storage allocation, which is NP-hard; so the offline packing is the best of several
// orders of first fit (by size, area, lifetime, time), which in practice come within a few per cent
// of the bound. Every packing is checked for overlaps.
#pragma once

#include <cstdint>
#include <string>

#include "report/whatif/program.hpp"

namespace memlab::report::whatif {

struct LowerBound {
    std::uint64_t requested = 0;  ///< peak of requested bytes
    std::uint64_t rounded = 0;    ///< the same, each allocation rounded up to 512 bytes
};

/// Sums saturate; failed allocations do not count.
LowerBound lower_bound(const Program& program);

struct Packing {
    std::uint64_t bytes = 0;  ///< height of the best packing, 512-byte granular
    std::string order;        ///< of that packing: "size", "area", "lifetime", "time"
    std::uint32_t tried = 0;  ///< completed orders
    bool limited = false;     ///< some orders exceeded the budget
};

/// `budget`: number of comparisons for all orders together, about 10 ns each.
Packing pack_offline(const Program& program, std::uint64_t budget = 400'000'000);

}  // namespace memlab::report::whatif
