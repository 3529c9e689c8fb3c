// The sizes of PyTorch's caching allocator, at each of their edges.
#include "allocator/size_policy.hpp"

#include <cstdint>
#include <functional>
#include <limits>

#include "tests/unit/allocator/world.hpp"

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
    CHECK_FALSE(policy.cuts_tail(0, true, true));
    CHECK(policy.cuts_tail(512, true, true));
    CHECK_FALSE(policy.cuts_tail(mib, false, true));
    CHECK(policy.cuts_tail(mib + 512, false, true));
    CHECK_FALSE(policy.cuts_tail(64 * kib - 512, false, true));
    CHECK(policy.cuts_tail(64 * kib - 512, false, false));
    CHECK_FALSE(policy.cuts_tail(64 * kib, false, false));

    const SizePolicy pytorch{unaligned()};
    CHECK_FALSE(pytorch.cuts_tail(512, false, false));
    CHECK_FALSE(pytorch.cuts_tail(64 * kib - 512, false, false));
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
    };
    for (const Row& row : rows) {
        PoolOptions options;
        row.spoil(options);
        CAPTURE(row.name);
        CHECK(problem_with(options).rfind(row.name, 0) == 0);
    }
}

}  // namespace memlab::allocator::testing
