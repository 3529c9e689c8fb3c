// Seeded random numbers that are the same with every standard library, and the parameters of the
// random tests.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace memlab::allocator::testing {

/// SplitMix64.
class Random {
  public:
    explicit Random(std::uint64_t seed) : state_(seed) {}

    std::uint64_t next() {
        std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
        return z ^ (z >> 31);
    }

    /// Less than `end`, which is not 0.
    std::uint64_t below(std::uint64_t end) { return next() % end; }

    bool one_in(std::uint64_t n) { return below(n) == 0; }

  private:
    std::uint64_t state_;
};

/// A number from the environment, for longer runs and for repeating a failure.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::strtoull(text, nullptr, 0) : otherwise;
}

/// Typical allocation sizes: mostly small, some repeated, with frequent boundary values.
inline std::uint64_t random_size(Random& random) {
    constexpr std::uint64_t favourites[] = {
        1,         512,        513,        65'536,    100'000, 1'048'576,  1'048'577,
        4'000'000, 10'485'760, 10'485'248, 2'097'152, 65'024,  11'534'336, 20'971'520};
    if (random.one_in(3)) {
        return favourites[random.below(sizeof favourites / sizeof *favourites)];
    }
    const std::uint64_t bits = 4 + random.below(22);
    return 1 + random.below(std::uint64_t{1} << bits);
}

}  // namespace memlab::allocator::testing
