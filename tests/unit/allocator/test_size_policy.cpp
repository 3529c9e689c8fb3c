// The sizes of PyTorch's caching allocator, at all boundary values.
#include "allocator/size_policy.hpp"

#include <cstdint>
#include <functional>
#include <limits>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

TEST_CASE("a request is rounded to 512 bytes and its segment follows from the rounded size") {
    struct Row {
        std::uint64_t requested, size, segment;
        bool small;
    };
    const Row rows[] = {
        {0, 512, 2 * mib, true},
        {1, 512, 2 * mib, true},
        {512, 512, 2 * mib, true},
        {513, 1024, 2 * mib, true},
        {mib, mib, 2 * mib, true},
        {mib + 1, mib + 512, 20 * mib, false},
        {4'000'000, 4'000'256, 20 * mib, false},
        {10 * mib - 512, 10 * mib - 512, 20 * mib, false},
        {10 * mib - 511, 10 * mib, 10 * mib, false},
        {10 * mib, 10 * mib, 10 * mib, false},
        {10 * mib + 1, 10 * mib + 512, 12 * mib, false},
        {gib, gib, gib, false},
        {1ULL << 60, 1ULL << 60, 1ULL << 60, false},
    };
    const SizePolicy policy{PoolOptions{}};
    for (const Row& row : rows) {
        CAPTURE(row.requested);
        const auto plan = policy.plan(row.requested);
        REQUIRE(plan.has_value());
        CHECK(plan->size == row.size);
        CHECK(plan->segment == row.segment);
        CHECK(plan->small == row.small);
    }
}

TEST_CASE("a size that overflows when rounded has no plan") {
    const SizePolicy policy{PoolOptions{}};
    constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    CHECK_FALSE(policy.plan(last).has_value());
    CHECK_FALSE(policy.plan(last - 510).has_value());
    // The block's size still fits in 64 bits, its segment's does not.
    CHECK_FALSE(policy.plan(last - 511).has_value());
    CHECK_FALSE(policy.plan(last - 2 * mib + 2).has_value());
    const auto largest = policy.plan(last - 2 * mib + 1);
    REQUIRE(largest.has_value());
    CHECK(largest->segment == last - 2 * mib + 1);
}

TEST_CASE("a tail becomes a block where PyTorch makes it one, and where it is an alignment gap") {
    const SizePolicy policy{PoolOptions{}};
    CHECK_FALSE(policy.splits_tail(2 * mib, 0, true, true));
    CHECK(policy.splits_tail(512, 512, true, true));
    CHECK_FALSE(policy.splits_tail(2 * mib, mib, false, true));
    CHECK(policy.splits_tail(2 * mib, mib + 512, false, true));
    CHECK_FALSE(policy.splits_tail(2 * mib, 64 * kib - 512, false, true));
    CHECK(policy.splits_tail(2 * mib, 64 * kib - 512, false, false));
    CHECK_FALSE(policy.splits_tail(2 * mib, 64 * kib, false, false));

    const SizePolicy pytorch{unaligned()};
    CHECK_FALSE(pytorch.splits_tail(2 * mib, 512, false, false));
    CHECK_FALSE(pytorch.splits_tail(2 * mib, 64 * kib - 512, false, false));
}

TEST_CASE("rounding to divisions of powers of two, with the numbers of PyTorch's documentation") {
    // "1200 with 4 divisions: the values are 1024, 1280, 1536, and 1792": scaled, since PyTorch
    // rounds so only above 512 bytes times the divisions.
    PoolOptions options;
    options.roundup_power2_divisions.fill(4);
    const SizePolicy policy(options);
    struct Row {
        std::uint64_t requested, size;
    };
    const Row rows[] = {
        {0, 512},
        {1200, 1536},
        {2048, 2048},
        {2049, 2560},
        {1200 * kib, 1280 * kib},
        {1280 * kib, 1280 * kib},
        {1280 * kib + 1, 1536 * kib},
        {1792 * kib + 1, 2048 * kib},
        {2048 * kib, 2048 * kib},
        {(1ULL << 40) + 1, (1ULL << 40) + (1ULL << 38)},
    };
    for (const Row& row : rows) {
        CAPTURE(row.requested);
        CHECK(policy.plan(row.requested)->size == row.size);
    }
    CHECK_FALSE(policy.plan(std::numeric_limits<std::uint64_t>::max()).has_value());
    CHECK_FALSE(policy.plan(7ULL << 61 | 1).has_value());
    CHECK(policy.plan(7ULL << 61)->size == 7ULL << 61);
}

TEST_CASE("each range of sizes can have its own divisions") {
    RoundupDivisions divisions{};
    REQUIRE(parse_roundup_divisions("[256:1,512:2,1024:4,>:8]", &divisions).empty());
    CHECK(divisions == RoundupDivisions{1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 8, 8, 8, 8, 8, 8});
    REQUIRE(parse_roundup_divisions("16", &divisions).empty());
    CHECK(divisions ==
          RoundupDivisions{16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16, 16});
    REQUIRE(parse_roundup_divisions("[64:8,4:2,131072:4]", &divisions).empty());
    CHECK(divisions == RoundupDivisions{8, 8, 2, 8, 8, 8, 8, 0, 0, 0, 0, 0, 0, 0, 0, 4});

    PoolOptions options;
    REQUIRE(parse_roundup_divisions("[2:0,4:2,>:4]", &options.roundup_power2_divisions).empty());
    const SizePolicy policy(options);
    CHECK(policy.plan(3 * mib + 1)->size == 3 * mib + 512);
    CHECK(policy.plan(4 * mib + 1)->size == 5 * mib);
    CHECK(policy.plan(1000 * mib)->size == 1024 * mib);

    const RoundupDivisions before = divisions;
    for (const char* wrong :
         {"", "x", "8x", "3", "[", "[]", "[256]", "[256:]", "[256:3]", "[3:2]", "[0:2]", "[256:2",
          "[256:2]x", "[256:2,]", "[:2]", "99999999999", "-1", "[>2]"}) {
        CAPTURE(wrong);
        CHECK_FALSE(parse_roundup_divisions(wrong, &divisions).empty());
        CHECK(divisions == before);
    }
}

TEST_CASE("large segments are coarser where an eighth is free, and enough of it, but fragmented") {
    const SizePolicy policy{PoolOptions{}};
    const auto segment = [&](std::uint64_t mebibytes, std::uint64_t reserved,
                             std::uint64_t unused) {
        const auto plan = policy.plan(mebibytes * mib);
        REQUIRE(plan);
        return policy.segment_for(*plan, reserved * mib, unused * mib) / mib;
    };
    CHECK(segment(17, 800, 99) == 18);  // less than an eighth
    CHECK(segment(17, 100, 16) == 18);  // not enough for the block
    CHECK(segment(17, 0, 0) == 18);
    CHECK(segment(17, 800, 100) == 24);
    CHECK(segment(11, 800, 100) == 12);
    CHECK(segment(15, 800, 100) == 16);
    CHECK(segment(33, 800, 100) == 48);
    CHECK(segment(64, 800, 100) == 64);
    CHECK(segment(70, 800, 100) == 80);  // not 96: 16 MiB at most
    CHECK(segment(5, 800, 100) == 20);   // medium blocks have one size of segment
    CHECK(segment(1, 800, 100) == 2);
}

TEST_CASE("large segments are as PyTorch's where that is asked for, and where a rest were lost") {
    PoolOptions options;
    options.fragmented_rounding = 0;
    SizePolicy policy(options);
    CHECK(policy.segment_for(*policy.plan(17 * mib), 800 * mib, 100 * mib) == 18 * mib);
    options = {};
    options.large_rounding = 32 * mib;
    policy = SizePolicy(options);
    CHECK(policy.segment_for(*policy.plan(33 * mib), 800 * mib, 100 * mib) == 64 * mib);
    options = {};
    options.max_split_size = 24 * mib;
    policy = SizePolicy(options);
    CHECK(policy.segment_for(*policy.plan(17 * mib), 800 * mib, 100 * mib) == 18 * mib);
    CHECK(policy.segment_for(*policy.plan(33 * mib), 800 * mib, 100 * mib) == 34 * mib);
    CHECK(policy.segment_for(*policy.plan(11 * mib), 800 * mib, 100 * mib) == 12 * mib);
}

TEST_CASE("options that the pool cannot work with are named") {
    CHECK(problem_with(PoolOptions{}).empty());
    CHECK(problem_with(unaligned()).empty());

    struct Row {
        const char* name;
        std::function<void(PoolOptions&)> spoil;
    };
    const Row rows[] = {
        {"rounding", [](PoolOptions& o) { o.rounding = 0; }},
        {"rounding", [](PoolOptions& o) { o.rounding = 256; }},
        {"rounding", [](PoolOptions& o) { o.rounding = 768; }},
        {"rounding", [](PoolOptions& o) { o.rounding = 4 * mib; }},
        {"coarse_alignment", [](PoolOptions& o) { o.coarse_alignment = 256; }},
        {"coarse_alignment", [](PoolOptions& o) { o.coarse_alignment = 96 * kib; }},
        {"coarse_alignment", [](PoolOptions& o) { o.coarse_alignment = 4 * mib; }},
        {"coarse_alignment", [](PoolOptions& o) { o.small_size = 32 * kib; }},
        {"small_segment", [](PoolOptions& o) { o.small_segment = 0; }},
        {"small_segment", [](PoolOptions& o) { o.small_segment = 3 * mib; }},
        {"small_segment", [](PoolOptions& o) { o.small_size = 4 * mib; }},
        {"medium_segment", [](PoolOptions& o) { o.medium_segment = 5 * mib; }},
        {"medium_segment", [](PoolOptions& o) { o.medium_size = 32 * mib; }},
        {"large_rounding", [](PoolOptions& o) { o.large_rounding = 0; }},
        {"large_rounding", [](PoolOptions& o) { o.large_rounding = mib; }},
        {"fragmented_rounding", [](PoolOptions& o) { o.fragmented_rounding = mib; }},
        {"roundup_power2_divisions", [](PoolOptions& o) { o.roundup_power2_divisions[15] = 3; }},
        {"max_split_size", [](PoolOptions& o) { o.max_split_size = 19 * mib; }},
        {"max_non_split_rounding", [](PoolOptions& o) { o.max_non_split_rounding = 0; }},
        {"max_split_size",
         [](PoolOptions& o) {
             o.max_split_size = 100 * mib;
             o.expandable = true;
         }},
        {"expandable_range", [](PoolOptions& o) { o.expandable_range = mib; }},
        {"garbage_collection_threshold",
         [](PoolOptions& o) { o.garbage_collection_threshold = 1; }},
        {"garbage_collection_threshold",
         [](PoolOptions& o) { o.garbage_collection_threshold = -0.5; }},
        {"garbage_collection_threshold",
         [](PoolOptions& o) {
             o.garbage_collection_threshold = std::numeric_limits<double>::quiet_NaN();
         }},
    };
    for (const Row& row : rows) {
        PoolOptions options;
        row.spoil(options);
        CAPTURE(row.name);
        CHECK(problem_with(options).rfind(row.name, 0) == 0);
    }
}

}  // namespace memlab::allocator::testing
