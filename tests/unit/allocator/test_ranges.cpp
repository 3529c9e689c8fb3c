// Expandable ranges: growth in place, holes, what may be reserved, and backends without ranges. The
// checking observer also checks every mapping, and the random programs use ranges too.
#include <cstdint>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;
using What = Seen::What;
constexpr BackendStatus device_is_full{BackendStatus::Kind::out_of_memory, 2};

PoolOptions expandable(std::uint64_t range = 0, FreeSync sync = FreeSync::automatic) {
    PoolOptions options = with(sync);
    options.expandable = true;
    options.expandable_range = range;
    return options;
}

std::vector<Seen> only(Fixture& fixture, What what) {
    std::vector<Seen> found;
    for (const Seen& seen : fixture.observer.take_events()) {
        if (seen.what == what) {
            found.push_back(seen);
        }
    }
    return found;
}

}  // namespace

TEST_CASE("a range holds the pages that are needed, and small and large blocks have one each") {
    Fixture fixture(gib, expandable());
    const BlockInfo a = fixture.get(5 * mib, 3);
    CHECK(a.address == a.segment);
    CHECK(a.segment_size == 2 * gib);
    CHECK(a.size == 5 * mib);
    CHECK(fixture.observer.take_events() ==
          std::vector<Seen>{{What::segment_map, a.address, 6 * mib, 0, 3},
                            {What::alloc, a.address, 5 * mib, 5 * mib, 3}});
    const BlockInfo small = fixture.get(1000);
    CHECK(small.segment != a.segment);
    const PoolStats stats = fixture.pool.stats();
    CHECK(stats.reserved_bytes.large_pool == Stat{6 << 20, 6 << 20, 6 << 20, 0});
    CHECK(stats.reserved_bytes.small_pool.current == bytes_of(2 * mib));
    CHECK(stats.segment.all == Stat{2, 2, 2, 0});
    CHECK(stats.num_device_alloc == 2);
    CHECK(stats.inactive_split.all.current == 0);
    CHECK(fixture.backend.ranges() == 2);
    CHECK(fixture.backend.segments() == 0);
    CHECK(fixture.pool.owns(a.segment + gib));  // our addresses, though without memory
    CHECK_FALSE(fixture.pool.find(a.segment + gib).has_value());
    CHECK(fixture.pool.free(a.segment + gib, 0).kind == FreeResult::Kind::invalid);
    CHECK(fixture.problem() == sound);
    fixture.give(a.address);
    fixture.give(small.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a growing tensor extends the free block before the end in place") {
    Fixture fixture(gib, expandable());
    Address first = 0;
    for (std::uint64_t size = 10 * mib; size <= 100 * mib; size += 10 * mib) {
        const BlockInfo block = fixture.get(size);
        first = first == 0 ? block.address : first;
        CHECK(block.address == first);
        CHECK(fixture.reserved() == bytes_of(size));
        fixture.give(block.address);
    }
    CHECK(fixture.pool.stats().reserved_bytes.all.freed == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("what is cached goes back by whole pages, out of the middle of a range") {
    Fixture fixture(gib, expandable());
    const BlockInfo a = fixture.get(5 * mib);
    const BlockInfo b = fixture.get(10 * mib);
    const BlockInfo c = fixture.get(5 * mib);
    CHECK(b.address == a.address + 5 * mib);
    fixture.give(b.address);
    fixture.observer.take_events();
    // b is 5 MiB to 15 MiB: whole pages are 6 to 14.
    CHECK(fixture.pool.release_cached(false) == 8 * mib);
    CHECK(only(fixture, What::segment_unmap) ==
          std::vector<Seen>{{What::segment_unmap, a.segment + 6 * mib, 8 * mib, 0, 0}});
    CHECK(fixture.reserved() == bytes_of(12 * mib));
    CHECK(fixture.backend.mapped() == 12 * mib);
    CHECK(fixture.problem() == sound);

    // The hole is filled from below, between its neighbours.
    const BlockInfo d = fixture.get(4 * mib);
    CHECK(d.address == b.address);
    CHECK(only(fixture, What::segment_map).front() ==
          Seen{What::segment_map, a.segment + 6 * mib, 4 * mib, 0, 0});
    CHECK(fixture.problem() == sound);
    for (const Address each : {a.address, c.address, d.address}) {
        fixture.give(each);
    }
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("what was mapped at once goes back in chunks of a half") {
    CHECK(chunk_bytes(2 * mib) == 2 * mib);
    CHECK(chunk_bytes(4 * mib) == 2 * mib);
    CHECK(chunk_bytes(16 * mib) == 8 * mib);
    CHECK(chunk_bytes(18 * mib) == 16 * mib);
    CHECK(chunk_bytes(200 * mib) == 64 * mib);
    CHECK(chunk_bytes(gib) == 64 * mib);
    CHECK(chunk_bytes(100 * gib) == 64 * mib);

    Fixture fixture(gib, expandable());
    const BlockInfo whole = fixture.get(200 * mib);  // three chunks of 64 MiB, one of 8
    fixture.give(whole.address);
    const BlockInfo low = fixture.get(40 * mib);
    const BlockInfo middle = fixture.get(20 * mib);
    const BlockInfo high = fixture.get(140 * mib);
    fixture.give(low.address);
    fixture.give(high.address);
    fixture.observer.take_events();
    // The first chunk is partly in use: what is free beside it stays.
    CHECK(middle.address == whole.address + 40 * mib);
    CHECK(fixture.pool.release_cached(false) == 136 * mib);
    CHECK(only(fixture, What::segment_unmap) ==
          std::vector<Seen>{{What::segment_unmap, whole.address + 64 * mib, 136 * mib, 0, 0}});
    CHECK(fixture.reserved() == bytes_of(64 * mib));
    CHECK(fixture.problem() == sound);

    // It is used again, and serves larger blocks together with new memory.
    CHECK(fixture.get(40 * mib).address == whole.address);
    CHECK(fixture.get(10 * mib).address == whole.address + 60 * mib);
    CHECK(fixture.reserved() == bytes_of(70 * mib));
    fixture.give(middle.address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("as few chunks as what may be reserved asks for go back, from the end of a block") {
    Fixture fixture(gib, expandable());
    const BlockInfo a = fixture.get(160 * mib);  // two chunks of 64 MiB, one of 32
    const BlockInfo b = fixture.get(2 * mib);
    const BlockInfo end = fixture.get(100 * mib);
    fixture.give(a.address);
    CHECK(fixture.get(20 * mib).address == a.address);
    fixture.give(end.address);
    fixture.observer.take_events();
    // 140 and 100 MiB are free. The block at the end grows by 50, 10 of them within a 24th above
    // the peak of 262; two chunks make up for the rest.
    CHECK(fixture.get(150 * mib).address == end.address);
    CHECK(only(fixture, What::segment_unmap) ==
          std::vector<Seen>{{What::segment_unmap, a.address + 64 * mib, 96 * mib, 0, 0}});
    CHECK(fixture.reserved() == bytes_of((262 - 96 + 50) * mib));
    CHECK(fixture.pool.owns(b.address));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("the fewest new pages decide where to grow, and a hole before the end") {
    Fixture fixture(gib, expandable());
    std::vector<BlockInfo> blocks;
    for (const std::uint64_t size : {8 * mib, 6 * mib, 8 * mib, 4 * mib, 8 * mib}) {
        blocks.push_back(fixture.get(size));
    }
    fixture.give(blocks[1].address);
    fixture.give(blocks[3].address);
    CHECK(fixture.pool.release_cached(false) == 10 * mib);
    fixture.observer.take_events();
    SECTION("holes of 6 and 4 MiB, all alike except their place: the lowest") {
        CHECK(fixture.get(4 * mib).address == blocks[1].address);
    }
    SECTION("only one is large enough") {
        CHECK(fixture.get(5 * mib).address == blocks[1].address);
    }
    SECTION("none is: the end") {
        CHECK(fixture.get(7 * mib).address == blocks[4].address + 8 * mib);
    }
    SECTION("a free block above a hole is extended downwards") {
        fixture.give(blocks[4].address);
        // 8 MiB and one page: at the end, or at the end of the upper hole, below the free block.
        const BlockInfo block = fixture.get(10 * mib);
        CHECK(block.address == blocks[4].address - 2 * mib);
        CHECK(only(fixture, What::segment_map).front().size == 2 * mib);
    }
    CHECK(fixture.problem() == sound);
}

TEST_CASE("what is reserved may pass the active peak by a 24th before pages go back") {
    Fixture fixture(2 * gib, expandable());
    const BlockInfo a = fixture.get(100 * mib);  // chunks of 64 and 36 MiB
    fixture.get(280 * mib);
    const BlockInfo end = fixture.get(100 * mib);
    fixture.give(a.address);
    fixture.give(end.address);
    fixture.observer.take_events();
    const BlockInfo within = fixture.get(120 * mib);
    CHECK(within.address == end.address);
    CHECK(fixture.reserved() == bytes_of(500 * mib));
    CHECK(only(fixture, What::segment_unmap).empty());
    fixture.give(within.address);
    CHECK(fixture.get(122 * mib).address == end.address);
    CHECK(only(fixture, What::segment_unmap) ==
          std::vector<Seen>{{What::segment_unmap, a.address + 64 * mib, 36 * mib, 0, 0}});
    CHECK(fixture.reserved() == bytes_of((500 - 36 + 2) * mib));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("what is reserved goes no further while whole pages are free") {
    Fixture fixture(gib, expandable());
    const BlockInfo a = fixture.get(40 * mib);
    const BlockInfo b = fixture.get(20 * mib);
    const BlockInfo c = fixture.get(30 * mib);
    const BlockInfo d = fixture.get(2 * mib);
    fixture.give(a.address);
    fixture.give(c.address);
    fixture.observer.take_events();
    // 92 MiB reserved, 70 free in two places. 50 MiB take all but 3.8 of their pages from these,
    // the largest first.
    const BlockInfo e = fixture.get(50 * mib, 7);
    const std::vector<Seen> expected = {
        {What::reclaim, 0, 0, 50 * mib, 7},
        {What::segment_unmap, a.address, 40 * mib, 0, 0},
        {What::segment_unmap, c.address + 16 * mib, 14 * mib, 0, 0},
        {What::segment_map, d.address + 2 * mib, 50 * mib, 0, 7},
        {What::alloc, e.address, 50 * mib, 50 * mib, 7},
    };
    CHECK(fixture.observer.take_events() == expected);
    CHECK(fixture.reserved() == bytes_of(88 * mib));
    CHECK(fixture.pool.stats().reserved_bytes.all.peak == bytes_of(92 * mib));
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    CHECK(fixture.pool.owns(b.address));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("out of memory: free pages are unmapped, and then mapped where they are needed") {
    Fixture fixture(100 * mib, expandable());
    const BlockInfo a = fixture.get(40 * mib);
    const BlockInfo b = fixture.get(2 * mib);
    const BlockInfo c = fixture.get(40 * mib);
    fixture.give(a.address);
    fixture.give(c.address);
    Address elsewhere = 0;  // as another process
    REQUIRE(fixture.backend.segment_alloc(18 * mib, &elsewhere).ok());
    fixture.backend.fail(Call::pages_map, 1, device_is_full);
    const BlockInfo d = fixture.get(78 * mib);
    CHECK(d.address == b.address + 2 * mib);
    CHECK(fixture.pool.stats().num_alloc_retries == 1);
    CHECK(fixture.reserved() == bytes_of(80 * mib));
    CHECK(fixture.problem() == sound);
    CHECK(fixture.pool.allocate(10 * mib, 0).status.code == 2);
    CHECK(fixture.pool.stats().num_ooms == 1);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a range that is full is followed by another") {
    Fixture fixture(gib, expandable(20 * mib));
    const BlockInfo a = fixture.get(18 * mib);
    const BlockInfo b = fixture.get(4 * mib);
    const BlockInfo c = fixture.get(2 * mib);
    CHECK(b.segment == a.segment + 20 * mib);
    CHECK(c.address == a.segment + 18 * mib);
    const BlockInfo huge = fixture.get(41 * mib);
    CHECK(huge.segment_size == 42 * mib);
    CHECK(fixture.pool.stats().segment.all.current == 3);
    for (const BlockInfo& each : {a, b, c, huge}) {
        fixture.give(each.address);
    }
    CHECK(fixture.pool.release_cached(true) == 66 * mib);
    CHECK(fixture.pool.stats().segment.all.current == 0);
    CHECK(fixture.get(18 * mib).address == a.address);
    CHECK(fixture.backend.ranges() == 3);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("where ranges are not available, segments are") {
    Fixture fixture(gib, expandable());
    fixture.backend.fail(Call::range_reserve, 1, {BackendStatus::Kind::error, not_supported_code});
    const BlockInfo a = fixture.get(4'000'000);
    CHECK(a.segment_size == 20 * mib);
    fixture.get(1000);
    CHECK(fixture.backend.calls(Call::range_reserve) == 1);
    CHECK(fixture.backend.segments() == 2);
    CHECK(fixture.problem() == sound);
    CHECK(problem_of_replay(expandable(), fixture.observer.events(), gib) == sound);
}

TEST_CASE("a range that gets no memory is given back") {
    Fixture fixture(gib, expandable());
    fixture.backend.fail(Call::pages_map, 1, {BackendStatus::Kind::error, 700});
    CHECK(fixture.pool.allocate(mib, 0).status.code == 700);
    CHECK(fixture.backend.ranges() == 0);
    CHECK(fixture.observer.take_events().empty());
    CHECK(fixture.problem() == sound);
    fixture.get(mib);
    CHECK(fixture.backend.ranges() == 1);
}

TEST_CASE("a tick unmaps the pages that were free from one tick to another") {
    PoolOptions options = expandable();
    options.trim_after_ns = 100;
    Fixture fixture(gib, options);
    const BlockInfo a = fixture.get(30 * mib);
    const BlockInfo b = fixture.get(3 * mib);
    fixture.give(a.address);
    CHECK(fixture.pool.tick(1000) == 0);
    // What is cut off and comes back is little: the rest is as idle as before.
    const BlockInfo c = fixture.get(2 * mib);
    CHECK(fixture.pool.tick(1050) == 0);
    fixture.give(c.address);
    CHECK(fixture.pool.tick(1100) == 30 * mib);
    CHECK(fixture.reserved() == bytes_of(4 * mib));
    fixture.give(b.address);
    CHECK(fixture.pool.tick(2000) == 0);
    CHECK(fixture.pool.tick(2100) == 4 * mib);
    CHECK(fixture.problem_at_end() == sound);
    CHECK(problem_of_replay(options, fixture.observer.events(), gib) == sound);
}

TEST_CASE("memory is unmapped only when its work is done") {
    Fixture fixture(gib, expandable(0, FreeSync::never));
    const BlockInfo a = fixture.get(30 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    CHECK(fixture.pool.release_cached(false) == 0);
    CHECK(fixture.backend.mapped() == 30 * mib);
    fixture.backend.advance_all();
    CHECK(fixture.pool.release_cached(false) == 30 * mib);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("blocks that are not whole pages are aligned in a range as in a segment") {
    Fixture fixture(gib, expandable());
    std::vector<BlockInfo> tensors;
    for (int i = 0; i < 20; ++i) {
        tensors.push_back(fixture.get(4'000'000));
        CHECK(tensors.back().address % (64 * kib) == 0);
        CHECK(tensors.back().size == 4'000'256);
    }
    // 62 steps of 64 KiB each.
    CHECK(fixture.reserved() ==
          bytes_of((20 * 62 * 64 * kib + 2 * mib - 1) / (2 * mib) * (2 * mib)));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("abandoning forgets ranges too") {
    Fixture fixture(gib, expandable());
    const BlockInfo a = fixture.get(30 * mib);
    fixture.get(1000);
    fixture.pool.abandon();
    fixture.observer.forget();
    CHECK(fixture.reserved() == 0);
    CHECK_FALSE(fixture.pool.owns(a.address));
    CHECK(fixture.problem() == sound);
    fixture.get(30 * mib);
    CHECK(fixture.problem() == sound);
}

}  // namespace memlab::allocator::testing
