// Two words mixed into one, the step of the recorder's hashes of call stacks and of texts.
#pragma once

#include <cstdint>

namespace memlab::profiler {

/// An odd number whose bits look random: 2^64 divided by the golden ratio.
inline constexpr std::uint64_t mix_factor = 0x9e3779b97f4a7c15ULL;

__extension__ using Wide = unsigned __int128;

/// Both halves of the product depend on all bits of both words. 0 where one of them is 0.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace memlab::profiler
