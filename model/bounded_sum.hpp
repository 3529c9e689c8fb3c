// Saturating sums, for untrusted figures from a file.
#pragma once

#include <cstdint>
#include <limits>

namespace memlab::model {

/// a + b, or the largest number on overflow.
inline std::uint64_t saturating_add(std::uint64_t a, std::uint64_t b) {
    std::uint64_t sum = 0;
    return __builtin_add_overflow(a, b, &sum) ? std::numeric_limits<std::uint64_t>::max() : sum;
}

/// The same, in place.
inline void add_to(std::uint64_t& sum, std::uint64_t more) {
    sum = saturating_add(sum, more);
}

}  // namespace memlab::model
