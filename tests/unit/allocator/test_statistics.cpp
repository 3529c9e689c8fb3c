// PyTorch's counters, step by step in a small scenario. (All other tests compare them with a count
// of the events.)
#include <cstdint>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

TEST_CASE("every counter means what PyTorch means by it") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo small = fixture.get(1000);
    const BlockInfo large = fixture.get(4'000'000);

    PoolStats stats = fixture.pool.stats();
    CHECK(stats.allocation.all == Stat{2, 2, 2, 0});
    CHECK(stats.allocation.small_pool == Stat{1, 1, 1, 0});
    CHECK(stats.allocation.large_pool == Stat{1, 1, 1, 0});
    CHECK(stats.segment.all == Stat{2, 2, 2, 0});
    CHECK(stats.requested_bytes.all.current == 4'001'000);
    CHECK(stats.allocated_bytes.all.current == 1024 + 4'000'256);
    CHECK(stats.reserved_bytes.small_pool.current == bytes_of(2 * mib));
    CHECK(stats.reserved_bytes.large_pool.current == bytes_of(20 * mib));
    CHECK(stats.inactive_split.all == Stat{2, 2, 2, 0});
    CHECK(stats.inactive_split_bytes.small_pool.current == bytes_of(2 * mib) - 1024);

    // Given back but not finished: no longer allocated, still active and requested.
    fixture.backend.access(large.id, large.address, large.size);
    fixture.give(large.address);
    stats = fixture.pool.stats();
    CHECK(stats.allocation.large_pool == Stat{0, 1, 1, 1});
    CHECK(stats.allocated_bytes.large_pool == Stat{0, 4'000'256, 4'000'256, 4'000'256});
    CHECK(stats.active.large_pool == Stat{1, 1, 1, 0});
    CHECK(stats.active_bytes.large_pool.current == 4'000'256);
    CHECK(stats.requested_bytes.large_pool.current == 4'000'000);
    CHECK(stats.inactive_split.large_pool.current == 1);

    // Finished: the segment is whole again, cached, and not split.
    fixture.backend.advance_all();
    CHECK(fixture.pool.release_cached(false) == 20 * mib);
    stats = fixture.pool.stats();
    CHECK(stats.active.large_pool == Stat{0, 1, 1, 1});
    CHECK(stats.requested_bytes.large_pool == Stat{0, 4'000'000, 4'000'000, 4'000'000});
    CHECK(stats.inactive_split.large_pool == Stat{0, 1, 1, 1});
    CHECK(stats.segment.large_pool == Stat{0, 1, 1, 1});
    CHECK(stats.segment.all.current == 1);
    CHECK(stats.num_device_alloc == 2);
    CHECK(stats.num_device_free == 1);
    CHECK(stats.num_sync_all_streams == 0);
    CHECK(stats.num_ooms == 0);

    fixture.give(small.address);
    CHECK(fixture.problem_at_end() == sound);
    CHECK(fixture.pool.stats().num_sync_all_streams == 1);
}

TEST_CASE("inactive_split changes by the net of each operation") {
    Fixture fixture;
    const BlockInfo a = fixture.get(512);
    const BlockInfo b = fixture.get(512);
    const BlockInfo c = fixture.get(512);
    fixture.give(a.address);
    fixture.give(c.address);  // joins the rest: no block more
    PoolStats stats = fixture.pool.stats();
    CHECK(stats.inactive_split.all == Stat{2, 2, 2, 0});
    CHECK(stats.inactive_split_bytes.all.current == bytes_of(2 * mib) - 512);
    fixture.give(b.address);  // both go, and the whole is not split
    stats = fixture.pool.stats();
    CHECK(stats.inactive_split.all == Stat{0, 2, 2, 2});
    CHECK(stats.inactive_split_bytes.all.current == 0);
    CHECK(stats.inactive_split_bytes.all.peak == bytes_of(2 * mib) - 512);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("the figures of fragmentation can be derived") {
    Fixture fixture;
    const BlockInfo a = fixture.get(30 * mib);
    const BlockInfo b = fixture.get(30 * mib);
    CHECK(fixture.pool.stats().largest_free == 0);
    fixture.give(a.address);
    fixture.get(4'000'000);
    const PoolStats stats = fixture.pool.stats();
    // 62 steps of 64 KiB are taken or an alignment gap.
    CHECK(stats.largest_free == bytes_of(30 * mib - 62 * 64 * kib));
    CHECK(stats.reserved_bytes.all.current - stats.active_bytes.all.current ==
          bytes_of(30 * mib) - 4'000'256);
    CHECK(stats.reserved_bytes.all.peak == stats.active_bytes.all.peak);
    fixture.give(b.address);
    CHECK(fixture.pool.stats().largest_free == bytes_of(30 * mib));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("peaks outlive what they were of") {
    Fixture fixture;
    const BlockInfo a = fixture.get(100 * mib);
    fixture.give(a.address);
    fixture.pool.release_cached(true);
    const BlockInfo b = fixture.get(10 * mib);
    const PoolStats stats = fixture.pool.stats();
    CHECK(stats.allocated_bytes.all.peak == bytes_of(100 * mib));
    CHECK(stats.reserved_bytes.all.peak == bytes_of(100 * mib));
    CHECK(stats.allocated_bytes.all.current == bytes_of(10 * mib));
    CHECK(stats.allocated_bytes.all.allocated == bytes_of(110 * mib));
    fixture.give(b.address);
    CHECK(fixture.problem_at_end() == sound);
}

}  // namespace memlab::allocator::testing
