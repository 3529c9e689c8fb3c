// PyTorch's options at work: max_split_size and the garbage collection.
#include <cstdint>
#include <vector>

#include "tests/unit/allocator/world.hpp"

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

std::vector<Address> given_back(World& world) {
    std::vector<Address> addresses;
    for (const Seen& seen : world.observer.take_events()) {
        if (seen.what == What::segment_free) {
            addresses.push_back(seen.address);
        }
    }
    return addresses;
}

}  // namespace

TEST_CASE("max_split_size: a large free block is kept for large requests and never cut") {
    World world(gib, unsplit_from(40 * mib));
    const BlockInfo large = world.get(100 * mib);
    CHECK(world.pool.stats().oversize_allocations == Stat{1, 1, 1, 0});
    CHECK(world.pool.stats().oversize_segments == Stat{1, 1, 1, 0});
    CHECK(world.pool.stats().max_split_size == bytes_of(40 * mib));
    world.give(large.address);
    CHECK(world.pool.stats().oversize_allocations.current == 0);

    const BlockInfo small = world.get(30 * mib);
    CHECK(small.segment != large.segment);

    // Up to max_non_split_rounding may stay unused, and is then part of the block.
    CHECK(world.get(80 * mib).segment != large.segment);
    const BlockInfo again = world.get(81 * mib);
    CHECK(again.address == large.address);
    CHECK(again.size == 100 * mib);
    CHECK(world.problem() == sound);
}

TEST_CASE("max_split_size: a segment just as large may still be cut for what made it") {
    World world(gib, unsplit_from(40 * mib));
    const BlockInfo block = world.get(39 * mib - 512);
    CHECK(block.size == 39 * mib - 512);
    CHECK(block.segment_size == 40 * mib);
    CHECK(world.pool.stats().oversize_segments.current == 1);
    CHECK(world.pool.stats().oversize_allocations.current == 0);
    world.give(block.address);
    CHECK(world.get(39 * mib - 512).segment != block.segment);
    CHECK(world.problem() == sound);
}

TEST_CASE("garbage collection gives back what was unused for longest, and only above its share") {
    World world(400 * mib, collecting(0.5));
    const BlockInfo a = world.get(60 * mib);
    const BlockInfo b = world.get(62 * mib);
    const BlockInfo c = world.get(64 * mib);
    world.give(a.address);
    world.get(70 * mib);
    world.give(b.address);
    world.give(c.address);
    world.observer.take_events();

    // 256 MiB are reserved, 200 the limit; `a` is older than the average.
    const BlockInfo large = world.get(100 * mib, 9);
    const std::vector<Seen> expected = {
        {What::make_room, 0, 0, 100 * mib, 9},
        {What::segment_free, a.segment, 60 * mib, 0, 0},
        {What::segment_alloc, large.segment, 100 * mib, 0, 9},
        {What::alloc, large.address, 100 * mib, 100 * mib, 9},
    };
    CHECK(world.observer.take_events() == expected);
    CHECK(world.pool.stats().num_alloc_retries == 0);
    CHECK(world.problem() == sound);
}

TEST_CASE("garbage collection goes on with the next age until it is below its share") {
    World world(10 * gib, collecting(0.5, 200 * mib));
    const BlockInfo a = world.get(60 * mib);
    const BlockInfo b = world.get(62 * mib);
    const BlockInfo c = world.get(64 * mib);
    const BlockInfo kept = world.get(30 * mib);
    world.give(a.address);
    world.give(world.get(20 * mib).address);  // from `a`, which is whole again
    world.give(b.address);
    world.give(c.address);
    world.observer.take_events();
    // 216 MiB, 116 too many. Of equal age all go at once.
    world.get(100 * mib);
    CHECK(given_back(world) == std::vector<Address>{a.segment, b.segment, c.segment});
    // What is in use is not garbage, and small segments are never looked at.
    const BlockInfo little = world.get(1000);
    world.give(little.address);
    CHECK(world.observer.take_kinds().front() == What::segment_alloc);
    CHECK(world.pool.owns(kept.address));
    CHECK(world.problem() == sound);
}

TEST_CASE("there is no garbage below the share, or without one") {
    for (const PoolOptions& options : {collecting(0.9), collecting(0)}) {
        World world(400 * mib, options);
        const BlockInfo a = world.get(300 * mib);
        world.give(a.address);
        world.get(1000);  // grows
        CHECK(world.pool.stats().num_device_alloc == 2);
        CHECK(world.pool.owns(a.address));
        CHECK(world.problem() == sound);
    }
}

}  // namespace memlab::allocator::testing
