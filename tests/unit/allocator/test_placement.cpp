// Where blocks go: the four lines that everyone asks about, best fit, split, merge, alignment, and
// the questions one can ask about an address. The checking observer judges every placement besides.
#include <cstdint>
#include <vector>

#include "tests/unit/allocator/world.hpp"

namespace memlab::allocator::testing {

TEST_CASE("the four lines: a 3.81 MiB tensor, its deletion, the emptied cache") {
    World world;
    CHECK(world.reserved() == 0);

    const BlockInfo tensor = world.get(4'000'000);
    CHECK(tensor.size == 4'000'256);
    CHECK(world.allocated() == 4'000'256);  // 3.81 MiB
    CHECK(world.reserved() == bytes_of(20 * mib));

    world.give(tensor.address);
    CHECK(world.allocated() == 0);
    CHECK(world.reserved() == bytes_of(20 * mib));

    CHECK(world.pool.release_cached(true) == 20 * mib);
    CHECK(world.allocated() == 0);
    CHECK(world.reserved() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("releasing the cache gives back only what is wholly unused") {
    World world;
    const BlockInfo first = world.get(4'000'000);
    const BlockInfo second = world.get(4'000'000);
    const BlockInfo alone = world.get(30 * mib);
    world.give(first.address);
    world.give(alone.address);
    CHECK(world.pool.release_cached(false) == 30 * mib);
    CHECK(world.reserved() == bytes_of(20 * mib));
    CHECK(world.pool.release_cached(false) == 0);
    world.give(second.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("small and large requests come from different segments") {
    World world;
    const BlockInfo small = world.get(mib);
    const BlockInfo large = world.get(mib + 1);
    CHECK(small.segment != large.segment);
    CHECK(small.segment_size == 2 * mib);
    CHECK(large.segment_size == 20 * mib);
    // 18.9 MiB are free in the large segment, 1 MiB in the small one.
    const BlockInfo second = world.get(mib);
    CHECK(second.segment == small.segment);
    const BlockInfo third = world.get(512);
    CHECK(third.segment != small.segment);
    CHECK(third.segment_size == 2 * mib);
    CHECK(world.problem() == sound);
}

TEST_CASE("blocks follow each other, 512 bytes apart") {
    World world;
    const BlockInfo first = world.get(100);
    const BlockInfo second = world.get(100);
    CHECK(second.address == first.address + 512);
    CHECK(second.segment == first.segment);
    CHECK(second.id > first.id);
    CHECK(world.problem() == sound);
}

TEST_CASE("the smallest block that fits is taken, the lowest of equals") {
    World world;
    std::vector<BlockInfo> blocks;
    for (const std::uint64_t size : {4096U, 512U, 1024U, 512U, 2048U, 512U, 1024U, 512U}) {
        blocks.push_back(world.get(size));
    }
    world.give(blocks[0].address);
    world.give(blocks[2].address);
    world.give(blocks[4].address);
    world.give(blocks[6].address);

    CHECK(world.get(600).address == blocks[2].address);
    CHECK(world.get(600).address == blocks[6].address);
    CHECK(world.get(600).address == blocks[4].address);  // 2048, cut
    CHECK(world.get(512).address == blocks[4].address + 1024);
    CHECK(world.get(3000).address == blocks[0].address);
    CHECK(world.problem() == sound);
}

TEST_CASE("a free block merges with both neighbours and the whole segment stays cached") {
    World world;
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(1000);
    const BlockInfo c = world.get(1000);
    const BlockInfo d = world.get(1000);
    world.give(a.address);
    world.give(c.address);
    CHECK(world.pool.stats().inactive_split.all.current == 3);
    world.give(b.address);
    CHECK(world.pool.stats().inactive_split.all.current == 2);
    CHECK(world.get(3072).address == a.address);
    world.give(a.address);
    world.give(d.address);
    CHECK(world.pool.stats().inactive_split.all.current == 0);
    CHECK(world.reserved() == bytes_of(2 * mib));
    const BlockInfo whole = world.get(mib);
    CHECK(whole.address == a.segment);
    CHECK(world.pool.stats().num_device_alloc == 1);
    CHECK(world.problem() == sound);
}

TEST_CASE("where memory is in pieces new large segments are coarser, if there is as much") {
    World world(100 * mib);
    std::vector<BlockInfo> blocks(5);
    for (BlockInfo& block : blocks) {
        block = world.get(16 * mib);
    }
    world.give(blocks[1].address);
    world.give(blocks[3].address);
    world.observer.take_events();
    const auto reserved_by = [&](std::uint64_t bytes) {
        const std::int64_t before = world.pool.stats().reserved_bytes.all.current;
        world.get(bytes);
        return world.pool.stats().reserved_bytes.all.current - before;
    };
    CHECK(reserved_by(17 * mib) == bytes_of(18 * mib));  // 24 MiB are not there
    CHECK(world.pool.stats().num_alloc_retries == 0);
    world.pool.release_cached(false);
    CHECK(reserved_by(17 * mib) == bytes_of(18 * mib));  // nothing is free
    CHECK(world.problem() == sound);

    World larger(gib);
    const Address first = larger.get(16 * mib).address;
    larger.get(16 * mib);
    larger.give(first);
    const BlockInfo block = larger.get(17 * mib);
    CHECK(larger.pool.stats().reserved_bytes.all.current == bytes_of((16 + 16 + 18) * mib));
    larger.give(block.address);
    larger.get(20 * mib);
    CHECK(larger.pool.stats().reserved_bytes.all.current == bytes_of((16 + 16 + 18 + 24) * mib));
    CHECK(larger.get(4 * mib).size == 4 * mib);  // beside the 20
    CHECK(larger.pool.stats().reserved_bytes.all.current == bytes_of((16 + 16 + 18 + 24) * mib));
    CHECK(larger.problem() == sound);
}

TEST_CASE("a large block keeps a tail of up to 1 MiB") {
    World world;
    const BlockInfo kept = world.get(11 * mib);  // from 12 MiB
    CHECK(kept.size == 12 * mib);
    CHECK(kept.requested == 11 * mib);
    world.give(kept.address);
    const BlockInfo cut = world.get(11 * mib - 512);
    CHECK(cut.size == 11 * mib - 512);
    CHECK(world.pool.stats().inactive_split_bytes.large_pool.current == bytes_of(mib + 512));
    CHECK(world.problem() == sound);
}

TEST_CASE("without coarse alignment the layout is PyTorch's") {
    World world(80 * gib, unaligned());
    const BlockInfo a = world.get(4'000'000);
    const BlockInfo b = world.get(4'000'000);
    const BlockInfo c = world.get(4'000'000);
    CHECK(b.address == a.address + 4'000'256);
    CHECK(c.address == b.address + 4'000'256);
    world.give(b.address);
    const BlockInfo again = world.get(3'999'000);
    CHECK(again.address == b.address);
    CHECK(again.size == 4'000'256);
    CHECK(world.problem() == sound);
}

TEST_CASE("blocks from 64 KiB begin on 64 KiB boundaries without being rounded to them") {
    World world;
    SECTION("large: the same sizes are allocated again and again, the gap is never part of them") {
        std::vector<BlockInfo> tensors;
        for (int i = 0; i < 4; ++i) {
            tensors.push_back(world.get(4'000'000));
            CHECK(tensors.back().address % (64 * kib) == 0);
            CHECK(tensors.back().size == 4'000'256);
        }
        // Five, as without alignment; the last keeps the tail of the segment, as in PyTorch.
        tensors.push_back(world.get(4'000'000));
        CHECK(tensors.back().size == 20 * mib - 4 * 62 * 64 * kib);
        CHECK(world.reserved() == bytes_of(20 * mib));
        for (int round = 0; round < 3; ++round) {
            for (const std::size_t i : {1U, 3U, 2U}) {
                world.give(tensors[i].address);
            }
            for (const std::size_t i : {1U, 2U, 3U}) {
                tensors[i] = world.get(4'000'000);
                CHECK(tensors[i].size == 4'000'256);
            }
        }
        CHECK(world.reserved() == bytes_of(20 * mib));
    }
    SECTION("small: smaller requests fill the gaps") {
        const BlockInfo first = world.get(512);
        const BlockInfo big = world.get(100 * kib);
        CHECK(big.address == first.segment + 64 * kib);
        const BlockInfo gap = world.get(60 * kib);
        CHECK(gap.address == first.address + 512);
        const BlockInfo next = world.get(64 * kib);
        CHECK(next.address == first.segment + 192 * kib);
        CHECK(world.get(64 * kib - 512).address == first.segment + 256 * kib);
    }
    CHECK(world.problem() == sound);
}

TEST_CASE("find answers for every address of a live block and for no other") {
    World world;
    const BlockInfo a = world.get(1000, 7);
    const BlockInfo b = world.get(5000);
    const auto interior = world.pool.find(a.address + 1023);
    REQUIRE(interior.has_value());
    CHECK(interior->address == a.address);
    CHECK(interior->requested == 1000);
    CHECK(interior->size == 1024);
    CHECK(interior->id == a.id);
    CHECK(interior->segment == a.segment);
    CHECK(interior->segment_size == 2 * mib);
    CHECK(world.pool.find(a.address + 1024)->id == b.id);
    CHECK_FALSE(world.pool.find(b.address + b.size).has_value());
    CHECK_FALSE(world.pool.find(0).has_value());
    CHECK_FALSE(world.pool.find(a.segment - 1).has_value());

    world.give(a.address);
    CHECK_FALSE(world.pool.find(a.address).has_value());
    CHECK(world.pool.owns(a.address));
    CHECK(world.pool.owns(a.segment + 2 * mib - 1));
    CHECK_FALSE(world.pool.owns(a.segment + 2 * mib));
    CHECK_FALSE(world.pool.owns(a.segment - 1));
    CHECK_FALSE(world.pool.owns(0));
    world.give(b.address);
    world.pool.release_cached(true);
    CHECK_FALSE(world.pool.owns(a.address));
}

TEST_CASE("an allocation of 0 bytes is served as the smallest block") {
    World world;
    const BlockInfo block = world.get(0);
    CHECK(block.size == 512);
    CHECK(world.pool.stats().requested_bytes.all.current == 0);
    world.give(block.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("two pools give different ids and the same places") {
    World one;
    World two;
    for (const std::uint64_t size :
         std::vector<std::uint64_t>{100, 3000, 4'000'000, 100, 30 * mib}) {
        const BlockInfo a = one.get(size);
        const BlockInfo b = two.get(size);
        CHECK(a.address == b.address);
        CHECK(a.size == b.size);
        CHECK(a.id != b.id);
    }
}

TEST_CASE("the pool works without an observer") {
    SimulatedBackend backend(gib);
    Pool pool({}, backend, nullptr);
    const AllocResult result = pool.allocate(4'000'000, 0);
    REQUIRE(result.status.ok());
    CHECK(pool.free(result.block.address, 0).kind == FreeResult::Kind::freed);
    CHECK(pool.release_cached(true) == 20 * mib);
    CHECK(pool.validate() == sound);
    CHECK(backend.problems().empty());
}

}  // namespace memlab::allocator::testing
