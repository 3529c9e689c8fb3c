// Sums of figures that come from a file: they need not add up, and must not wrap around.
#pragma once

#include <cstdint>
#include <limits>

namespace memlab::report {

/// Stops at the largest number.
inline void add_to(std::uint64_t& sum, std::uint64_t more) {
    if (__builtin_add_overflow(sum, more, &sum)) {
        sum = std::numeric_limits<std::uint64_t>::max();
    }
}

}  // namespace memlab::report
