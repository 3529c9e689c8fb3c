// The mixing step of the recorder's hashes: two words to one.
#pragma once

#include <cstdint>

namespace memlab::profiler {

/// 2^64 divided by the golden ratio: odd, with random-looking bits.
inline constexpr std::uint64_t mix_factor = 0x9e3779b97f4a7c15ULL;

/// Where lanes of a hash begin that nothing else sets apart: as no word that is hashed is. One that
/// equals its lane would make the product 0, whatever the other word is.
inline constexpr std::uint64_t lane_seeds[] = {0xd1342543de82ef95ULL, 0xaf251af3b0f025b5ULL};

__extension__ using Wide = unsigned __int128;

/// Folds the 128-bit product, so that all bits of both words take effect. 0 if either is 0.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace memlab::profiler
