// Bounds and packings: small cases, and invariants of random programs.
#include "report/whatif/packing.hpp"

#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"
#include "tests/unit/whatif/random_programs.hpp"

using namespace memlab::test;
using namespace memlab::report::whatif;

TEST_CASE("the lower bound is the most that was held at once") {
    ProgramWriter writer;
    const std::uint32_t first = writer.allocate(1000);
    const std::uint32_t second = writer.allocate(2000);
    writer.request_free(first);  // freed by the application: no allocator needs it
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
    // In order of time b is placed between a and c, so that d, as large as a and b together, finds
    // no hole. With known lifetimes b is placed behind c.
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
        // An invalid packing is never the best: then `order` would be empty.
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
