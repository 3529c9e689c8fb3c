// The starts of processes on one clock: of one machine, of several, with clocks that were set.
#include "report/runs/common_clock.hpp"

#include <limits>

#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

constexpr std::uint64_t second_ns = 1'000'000'000;
constexpr std::uint64_t boot = 1'700'000'000 * second_ns;

using Starts = std::vector<std::uint64_t>;

}  // namespace

TEST_CASE("Processes of a machine are apart as its monotonic clock says") {
    // Between the two starts somebody set the wall clock forward by half a second.
    const Starts starts =
        common_starts({{"a", boot + 10 * second_ns, 10 * second_ns},
                       {"a", boot + 12 * second_ns + second_ns / 2, 12 * second_ns}});
    CHECK(starts[1] - starts[0] == 2 * second_ns);
    CHECK(starts ==
          Starts{boot + 10 * second_ns + second_ns / 2, boot + 12 * second_ns + second_ns / 2});
}

TEST_CASE("Machines are apart as their wall clocks say") {
    CHECK(common_starts({{"a", boot + 10 * second_ns, 10 * second_ns},
                         {"b", boot + 10 * second_ns + 3, 99 * second_ns}}) ==
          Starts{boot + 10 * second_ns, boot + 10 * second_ns + 3});
}

TEST_CASE("A machine whose clocks disagree has its wall clock") {
    // It was booted again, or the wall clock was set by much.
    CHECK(common_starts({{"a", boot + 10 * second_ns, 10 * second_ns},
                         {"a", boot + 500 * second_ns, 3 * second_ns},
                         {"b", boot + 7 * second_ns, 7 * second_ns}}) ==
          Starts{boot + 10 * second_ns, boot + 500 * second_ns, boot + 7 * second_ns});
}

TEST_CASE("A report without a log has its wall clock, and does not disturb the others") {
    CHECK(common_starts({{"a", boot + 10 * second_ns, 10 * second_ns},
                         {"a", boot + 900 * second_ns, std::nullopt},
                         {"a", boot + 12 * second_ns + 5, 12 * second_ns}}) ==
          Starts{boot + 10 * second_ns + 5, boot + 900 * second_ns, boot + 12 * second_ns + 5});
    CHECK(common_starts({{"a", 7, std::nullopt}}) == Starts{7});
    CHECK(common_starts({}).empty());
}

TEST_CASE("Clocks of a damaged log neither wrap around nor count") {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    // A monotonic clock ahead of the wall clock is none.
    CHECK(common_starts({{"a", 5, most}, {"a", boot + 3 * second_ns, 3 * second_ns}}) ==
          Starts{5, boot + 3 * second_ns});
    CHECK(common_starts({{"a", most, 1}, {"a", most, 2}}) == Starts{most, most});
}
