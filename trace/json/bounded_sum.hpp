// Sums of figures that come from a file: they need not add up, and must not wrap around.
#pragma once

#include <cstdint>
#include <limits>

namespace memlab::report {

/// At most the largest number.
inline std::uint64_t bounded_add(std::uint64_t a, std::uint64_t b) {
    std::uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

/// Stops at the largest number.
inline void add_to(std::uint64_t& sum, std::uint64_t more) {
    sum = bounded_add(sum, more);
}

}  // namespace memlab::report
