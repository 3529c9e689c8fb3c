// MEMLAB_LIMIT's text, and the arithmetic of a device that looks smaller than it is.
#include "interpose/options/device_limits.hpp"

#include <limits>

#include "tests/catch.hpp"

using namespace memlab::interpose;

namespace {

constexpr std::uint64_t mib = std::uint64_t{1} << 20;
constexpr std::uint64_t gib = std::uint64_t{1} << 30;
constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
const char* const uuid = "GPU-4f5c1c9a-1234-5678-9abc-def012345678";

std::uint64_t limit_in(const char* text, int index) {
    std::vector<DeviceLimit> limits;
    REQUIRE(parse_limits(text, &limits));
    return find_limit(limits, index, uuid);
}

}  // namespace

TEST_CASE("limits are for all devices, for an index, or for a UUID") {
    CHECK(limit_in("24GiB", 0) == 24 * gib);
    CHECK(limit_in("24GiB", 63) == 24 * gib);
    CHECK(limit_in("24GiB,device=1", 1) == 24 * gib);
    CHECK(limit_in("24GiB,device=1", 0) == 0);
    CHECK(limit_in("8GiB; 24GiB,device=1", 1) == 24 * gib);
    CHECK(limit_in("24GiB,device=1;8GiB", 0) == 8 * gib);
    CHECK(limit_in("0,device=1;8GiB", 1) == 0);
    CHECK(limit_in("8GiB,device=GPU-4f5c1c9a-1234-5678-9abc-def012345678", 5) == 8 * gib);
    CHECK(limit_in("8GiB , device=MIG-4F5C1C9A12", 5) == 8 * gib);
    CHECK(limit_in("8GiB,device=GPU-4f5c1c9b", 5) == 0);
}

TEST_CASE("an invalid limit changes nothing") {
    std::vector<DeviceLimit> limits;
    REQUIRE(parse_limits("3GiB", &limits));
    for (const char* bad : {"",
                            ";",
                            "1GiB;",
                            ";1GiB",
                            "1GX",
                            "x",
                            "1GiB,",
                            "1GiB,device",
                            "1GiB,device=",
                            "1GiB,device=-1",
                            "1GiB,device=1x",
                            "1GiB,device=GPU-",
                            "1GiB,device=GPU-xyz",
                            "1GiB,device=4f5c",
                            "1GiB,index=1",
                            "1GiB;2GiB",
                            "1GiB,device=0;2GiB,device=0",
                            "1GiB,device=GPU-aa;2GiB,device=GPU-AA",
                            "99999999TiB",
                            "1GiB,device=99999999999",
                            "1GiB,device=GPU-4f5c1c9a-1234-5678-9abc-def0123456780"}) {
        INFO(bad);
        CHECK_FALSE(parse_limits(bad, &limits));
    }
    REQUIRE(limits.size() == 1);
    CHECK(limits[0].bytes == 3 * gib);
}

TEST_CASE("a program sees what the limit leaves, and cached memory as free") {
    struct Case {
        std::uint64_t free, total, cached, limit, seen_free, seen_total;
    };
    constexpr Case cases[] = {
        {70 * gib, 80 * gib, 0, 0, 70 * gib, 80 * gib},         // no limit
        {70 * gib, 80 * gib, 2 * gib, 0, 72 * gib, 80 * gib},   // cached memory counts as free
        {79 * gib, 80 * gib, 2 * gib, 0, 80 * gib, 80 * gib},   // never more than the total
        {70 * gib, 80 * gib, 0, 24 * gib, 14 * gib, 24 * gib},  // 10 in use
        {70 * gib, 80 * gib, 2 * gib, 24 * gib, 16 * gib, 24 * gib},
        {40 * gib, 80 * gib, 0, 24 * gib, 0, 24 * gib},  // more used than there is
        {40 * gib, 80 * gib, 20 * gib, 24 * gib, 4 * gib, 24 * gib},
        {70 * gib, 80 * gib, 0, 80 * gib, 70 * gib, 80 * gib},  // a limit that has no effect
        {70 * gib, 80 * gib, 0, most, 70 * gib, 80 * gib},
        {90 * gib, 80 * gib, 0, 24 * gib, 24 * gib, 24 * gib},  // a driver that cannot count
    };
    for (const Case& c : cases) {
        INFO(c.free << " " << c.cached << " " << c.limit);
        const VisibleMemory seen = visible_memory(c.free, c.total, c.cached, c.limit);
        CHECK(seen.free == c.seen_free);
        CHECK(seen.total == c.seen_total);
    }
}

TEST_CASE("the limit is checked in whole pages") {
    const auto fits = [](std::uint64_t bytes) {
        return fits_limit(bytes, 70 * gib, 80 * gib, 24 * gib);  // 10 used, 14 left
    };
    CHECK(fits(0));
    CHECK(fits(14 * gib));
    CHECK_FALSE(fits(14 * gib + 1));
    CHECK(fits(14 * gib - 2 * mib + 1));
    CHECK_FALSE(fits(most));
    // A limit that is no multiple of a page.
    CHECK(fits_limit(2 * mib, 80 * gib, 80 * gib, 3 * mib));
    CHECK_FALSE(fits_limit(2 * mib + 1, 80 * gib, 80 * gib, 3 * mib));
    // More used than the limit: nothing fits, not even nothing.
    CHECK(fits_limit(0, 80 * gib - 3 * mib, 80 * gib, 3 * mib));
    CHECK_FALSE(fits_limit(0, 80 * gib - 4 * mib, 80 * gib, 3 * mib));
    CHECK(fits_limit(most, 0, 80 * gib, 0));
    CHECK(fits_limit(most, 0, 80 * gib, 80 * gib));
}
