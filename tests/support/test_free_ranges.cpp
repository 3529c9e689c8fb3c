// The free ranges of an address space, beside a plain list of units.
#include <cstdint>
#include <random>
#include <utility>
#include <vector>

#include "tests/catch.hpp"
#include "tests/support/free_ranges.hpp"

using memlab::support::FreeRanges;

namespace {

constexpr std::uint64_t units = 400;

// The lowest aligned place of so many free units, or `units`.
std::uint64_t lowest(const std::vector<bool>& free, std::uint64_t length, std::uint64_t alignment) {
    for (std::uint64_t at = 0; at + length <= units; at += alignment) {
        std::uint64_t fits = 0;
        while (fits < length && free[at + fits]) {
            ++fits;
        }
        if (fits == length) {
            return at;
        }
    }
    return units;
}

}  // namespace

TEST_CASE("the lowest address that fits", "[free_ranges]") {
    std::mt19937_64 random(1);
    FreeRanges ranges;
    std::vector<bool> free(units, true);
    std::vector<std::pair<std::uint64_t, std::uint64_t>> taken;
    ranges.give(0, units);
    for (int i = 0; i < 20'000; ++i) {
        if (random() % 2 == 0) {
            const std::uint64_t length = 1 + random() % 20;
            const std::uint64_t alignment = std::uint64_t{1} << random() % 4;
            const std::uint64_t expected = lowest(free, length, alignment);
            std::uint64_t at = units;
            CHECK(ranges.take(length, alignment, at) == (expected != units));
            REQUIRE(at == expected);
            for (std::uint64_t unit = at; unit < units && unit < at + length; ++unit) {
                free[unit] = false;
            }
            if (at != units) {
                taken.emplace_back(at, length);
            }
        } else if (!taken.empty()) {
            std::swap(taken[random() % taken.size()], taken.back());
            const auto [at, length] = taken.back();
            taken.pop_back();
            ranges.give(at, length);
            for (std::uint64_t unit = at; unit < at + length; ++unit) {
                free[unit] = true;
            }
        }
    }
}
