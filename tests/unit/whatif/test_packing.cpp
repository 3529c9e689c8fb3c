// Bounds and packings: small cases by hand, and what must hold for random programs.
#include "report/whatif/packing.hpp"

#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"
#include "tests/unit/whatif/random_programs.hpp"

using namespace memlab::test;
using namespace memlab::whatif;

TEST_CASE("the lower bound is the most that was held at once") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(1000);
    const std::uint32_t second = writer.allocate(2000);
    writer.request_free(first);  // the application gave it back: no allocator needs it
    writer.allocate(500);
    writer.complete(first);
    writer.free(second);
    const LowerBound bound = lower_bound(writer.program);
    CHECK(bound.requested == 3000);
    CHECK(bound.rounded == 1024 + 2048);
}

TEST_CASE("sizes that no device has do not overflow the bound") {
    ProgramWriter writer;
    for (int i = 0; i < 4; ++i) {
        writer.allocate(~0ULL);
    }
    CHECK(lower_bound(writer.program).requested == ~0ULL);
    CHECK(pack_offline(writer.program).bytes == 0);
}

TEST_CASE("a packing that needs to know the future is found") {
    // In the order of time b lands between a and c, so that d, as large as a and b together, finds
    // no hole. Knowing what comes, b goes behind c.
    ProgramWriter writer;
    const std::uint32_t a = writer.allocate(64 * kib);
    const std::uint32_t b = writer.allocate(64 * kib);
    const std::uint32_t c = writer.allocate(64 * kib);
    writer.free(a);
    writer.free(c);
    writer.allocate(128 * kib);
    writer.free(b);
    const Packing packing = pack_offline(writer.program);
    CHECK(packing.bytes == 192 * kib);
    CHECK(packing.tried == 4);
    CHECK_FALSE(packing.limited);
    CHECK(packing.order != "time");
}

TEST_CASE("packings lie between the bound and the sum, and are sound") {
    for (std::uint64_t seed = 0; seed < 40; ++seed) {
        const Program program = random_program(seed, 800, 8 * mib);
        const LowerBound bound = lower_bound(program);
        const Packing packing = pack_offline(program);
        INFO("seed " << seed);
        // An unsound packing would not be counted as one of the best: it must have an order.
        REQUIRE(packing.order != nothing);
        CHECK(packing.bytes >= bound.rounded);
        CHECK(packing.bytes <= bound.rounded + bound.rounded / 4);
        CHECK(packing.tried == 4);
    }
}

TEST_CASE("without a budget only the order of time is left, and said to be") {
    const Program program = random_program(1, 800, 8 * mib);
    const Packing packing = pack_offline(program, 100);
    CHECK(packing.limited);
    CHECK(packing.order == "time");
    CHECK(packing.bytes >= lower_bound(program).rounded);
}

TEST_CASE("a program without allocations packs into nothing") {
    CHECK(pack_offline(Program{}).bytes == 0);
    CHECK(lower_bound(Program{}).rounded == 0);
}
