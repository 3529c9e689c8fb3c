// PyTorch's options at work: max_split_size and the garbage collection.
#include <cstdint>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

using What = Seen::What;

PoolOptions unsplit_from(std::uint64_t size) {
    PoolOptions options = unaligned();
    options.max_split_size = size;
    return options;
}

PoolOptions collecting(double threshold, std::uint64_t total = 0) {
    PoolOptions options = unaligned();
    options.garbage_collection_threshold = threshold;
    options.total_memory = total;
    return options;
}

std::vector<Address> given_back(Fixture& fixture) {
    std::vector<Address> addresses;
    for (const Seen& seen : fixture.observer.take_events()) {
        if (seen.what == What::segment_free) {
            addresses.push_back(seen.address);
        }
    }
    return addresses;
}

}  // namespace

TEST_CASE("max_split_size: a large free block is kept for large requests and never cut") {
    Fixture fixture(gib, unsplit_from(40 * mib));
    const BlockInfo large = fixture.get(100 * mib);
    CHECK(fixture.pool.stats().oversize_allocations == Stat{1, 1, 1, 0});
    CHECK(fixture.pool.stats().oversize_segments == Stat{1, 1, 1, 0});
    CHECK(fixture.pool.stats().max_split_size == bytes_of(40 * mib));
    fixture.give(large.address);
    CHECK(fixture.pool.stats().oversize_allocations.current == 0);

    const BlockInfo small = fixture.get(30 * mib);
    CHECK(small.segment != large.segment);

    // Up to max_non_split_rounding may stay unused, and is then part of the block.
    CHECK(fixture.get(80 * mib).segment != large.segment);
    const BlockInfo again = fixture.get(81 * mib);
    CHECK(again.address == large.address);
    CHECK(again.size == 100 * mib);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("max_split_size: a segment just as large may still be cut for what made it") {
    Fixture fixture(gib, unsplit_from(40 * mib));
    const BlockInfo block = fixture.get(39 * mib - 512);
    CHECK(block.size == 39 * mib - 512);
    CHECK(block.segment_size == 40 * mib);
    CHECK(fixture.pool.stats().oversize_segments.current == 1);
    CHECK(fixture.pool.stats().oversize_allocations.current == 0);
    fixture.give(block.address);
    CHECK(fixture.get(39 * mib - 512).segment != block.segment);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("garbage collection gives back what was unused for longest, and only above its share") {
    Fixture fixture(400 * mib, collecting(0.5));
    const BlockInfo a = fixture.get(60 * mib);
    const BlockInfo b = fixture.get(62 * mib);
    const BlockInfo c = fixture.get(64 * mib);
    fixture.give(a.address);
    fixture.get(70 * mib);
    fixture.give(b.address);
    fixture.give(c.address);
    fixture.observer.take_events();

    // 256 MiB are reserved, 200 the limit; `a` is older than the average.
    const BlockInfo large = fixture.get(100 * mib, 9);
    const std::vector<Seen> expected = {
        {What::reclaim, 0, 0, 100 * mib, 9},
        {What::segment_free, a.segment, 60 * mib, 0, 0},
        {What::segment_alloc, large.segment, 100 * mib, 0, 9},
        {What::alloc, large.address, 100 * mib, 100 * mib, 9},
    };
    CHECK(fixture.observer.take_events() == expected);
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("garbage collection goes on with the next age until it is below its share") {
    Fixture fixture(10 * gib, collecting(0.5, 200 * mib));
    const BlockInfo a = fixture.get(60 * mib);
    const BlockInfo b = fixture.get(62 * mib);
    const BlockInfo c = fixture.get(64 * mib);
    const BlockInfo kept = fixture.get(30 * mib);
    fixture.give(a.address);
    fixture.give(fixture.get(20 * mib).address);  // from `a`, which is whole again
    fixture.give(b.address);
    fixture.give(c.address);
    fixture.observer.take_events();
    // 216 MiB, 116 too many. Segments of equal age are freed together.
    fixture.get(100 * mib);
    CHECK(given_back(fixture) == std::vector<Address>{a.segment, b.segment, c.segment});
    // What is in use is not garbage, and small segments are never looked at.
    const BlockInfo little = fixture.get(1000);
    fixture.give(little.address);
    CHECK(fixture.observer.take_kinds().front() == What::segment_alloc);
    CHECK(fixture.pool.owns(kept.address));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("there is no garbage below the share, or without one") {
    for (const PoolOptions& options : {collecting(0.9), collecting(0)}) {
        Fixture fixture(400 * mib, options);
        const BlockInfo a = fixture.get(300 * mib);
        fixture.give(a.address);
        fixture.get(1000);  // grows
        CHECK(fixture.pool.stats().num_device_alloc == 2);
        CHECK(fixture.pool.owns(a.address));
        CHECK(fixture.problem() == sound);
    }
}

}  // namespace memlab::allocator::testing
