// The union of spans against a list of them.
#include <algorithm>
#include <random>
#include <utility>
#include <vector>

#include "report/inefficiencies/busy_times.hpp"
#include "tests/catch.hpp"

using memlab::report::BusyTimes;

namespace {

constexpr std::uint64_t idle = BusyTimes::min_idle;

}  // namespace

TEST_CASE("no work, no busy time") {
    const BusyTimes busy;
    CHECK(busy.empty());
    CHECK_FALSE(busy.any_in(0, ~std::uint64_t{0}));
}

TEST_CASE("spans include both ends, and short pauses between them") {
    BusyTimes busy;
    busy.add(10 * idle, 11 * idle);
    busy.add(12 * idle - 1, 13 * idle);
    busy.add(20 * idle, 20 * idle);
    CHECK(busy.any_in(11 * idle + 1, 12 * idle - 2));
    CHECK(busy.any_in(13 * idle, 14 * idle));
    CHECK_FALSE(busy.any_in(13 * idle + 1, 20 * idle - 1));
    CHECK(busy.any_in(20 * idle, 20 * idle));
    CHECK_FALSE(busy.any_in(0, 10 * idle - 1));
    CHECK_FALSE(busy.any_in(20 * idle + 1, ~std::uint64_t{0}));
}

TEST_CASE("the end of time") {
    BusyTimes busy;
    busy.add(~std::uint64_t{0} - 1, ~std::uint64_t{0});
    busy.add(0, 5);
    CHECK(busy.any_in(~std::uint64_t{0}, ~std::uint64_t{0}));
    CHECK_FALSE(busy.any_in(6, idle));
}

TEST_CASE("random spans in any order: what is idle is so by the list, too") {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        std::mt19937_64 random(seed);
        std::vector<std::pair<std::uint64_t, std::uint64_t>> list;
        BusyTimes busy;
        for (int i = 0; i < 60; ++i) {
            const std::uint64_t begin = random() % (200 * idle);
            list.emplace_back(begin, begin + random() % (3 * idle));
            busy.add(list.back().first, list.back().second);
        }
        for (int i = 0; i < 500; ++i) {
            const std::uint64_t begin = random() % (210 * idle);
            const std::uint64_t end = begin + random() % (2 * idle);
            const auto overlaps = [&](std::uint64_t more) {
                return std::any_of(list.begin(), list.end(), [&](const auto& span) {
                    return span.first <= end + more && begin <= span.second + more;
                });
            };
            INFO("seed " << seed << ", [" << begin << ", " << end << "]");
            if (overlaps(0)) {
                CHECK(busy.any_in(begin, end));
            } else if (!overlaps(idle)) {
                CHECK_FALSE(busy.any_in(begin, end));
            }
        }
    }
}
