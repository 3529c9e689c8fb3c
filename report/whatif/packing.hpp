// What no allocator can go below, and what one could reach that knew the future.
//
// The lower bound is the most that the program held at once. An allocator that knew all lifetimes
// in advance would have to solve dynamic storage allocation, which is NP-hard; so the offline
// packing is the best of several orders of first fit (by size, by area, by lifetime, by time),
// which in practice come within a few per cent of the bound. Every packing is checked for overlaps
// before it counts.
#pragma once

#include <cstdint>
#include <string>

#include "report/whatif/program.hpp"

namespace memlab::whatif {

struct LowerBound {
    std::uint64_t requested = 0;  ///< peak of what was asked for
    std::uint64_t rounded = 0;    ///< the same, each allocation rounded up to 512 bytes
};

/// Allocations in the order of the program; sums saturate. Those that failed count for nothing.
LowerBound lower_bound(const Program& program);

struct Packing {
    std::uint64_t bytes = 0;  ///< height of the best packing, 512-byte granular
    std::string order;        ///< which order gave it: "size", "area", "lifetime", "time"
    std::uint32_t tried = 0;  ///< orders that were finished
    bool limited = false;     ///< some orders were given up: the program is too large for them
};

/// `budget`: how many comparisons the orders may take together, about 10 ns each.
Packing pack_offline(const Program& program, std::uint64_t budget = 400'000'000);

}  // namespace memlab::whatif
