// Placement of blocks: rounding, best fit, splitting, coalescing, alignment, and queries by
// address. The checking observer also checks every placement.
#include <cstdint>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

TEST_CASE("the four lines: a 3.81 MiB tensor, its deletion, the emptied cache") {
    Fixture fixture;
    CHECK(fixture.reserved() == 0);

    const BlockInfo tensor = fixture.get(4'000'000);
    CHECK(tensor.size == 4'000'256);
    CHECK(fixture.allocated() == 4'000'256);  // 3.81 MiB
    CHECK(fixture.reserved() == bytes_of(20 * mib));

    fixture.give(tensor.address);
    CHECK(fixture.allocated() == 0);
    CHECK(fixture.reserved() == bytes_of(20 * mib));

    CHECK(fixture.pool.release_cached(true) == 20 * mib);
    CHECK(fixture.allocated() == 0);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("releasing the cache gives back only what is wholly unused") {
    Fixture fixture;
    const BlockInfo first = fixture.get(4'000'000);
    const BlockInfo second = fixture.get(4'000'000);
    const BlockInfo alone = fixture.get(30 * mib);
    fixture.give(first.address);
    fixture.give(alone.address);
    CHECK(fixture.pool.release_cached(false) == 30 * mib);
    CHECK(fixture.reserved() == bytes_of(20 * mib));
    CHECK(fixture.pool.release_cached(false) == 0);
    fixture.give(second.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("small and large requests come from different segments") {
    Fixture fixture;
    const BlockInfo small = fixture.get(mib);
    const BlockInfo large = fixture.get(mib + 1);
    CHECK(small.segment != large.segment);
    CHECK(small.segment_size == 2 * mib);
    CHECK(large.segment_size == 20 * mib);
    // 18.9 MiB are free in the large segment, 1 MiB in the small one.
    const BlockInfo second = fixture.get(mib);
    CHECK(second.segment == small.segment);
    const BlockInfo third = fixture.get(512);
    CHECK(third.segment != small.segment);
    CHECK(third.segment_size == 2 * mib);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("blocks follow each other, 512 bytes apart") {
    Fixture fixture;
    const BlockInfo first = fixture.get(100);
    const BlockInfo second = fixture.get(100);
    CHECK(second.address == first.address + 512);
    CHECK(second.segment == first.segment);
    CHECK(second.id > first.id);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("the smallest block that fits is taken, the lowest of equals") {
    Fixture fixture;
    std::vector<BlockInfo> blocks;
    for (const std::uint64_t size : {4096U, 512U, 1024U, 512U, 2048U, 512U, 1024U, 512U}) {
        blocks.push_back(fixture.get(size));
    }
    fixture.give(blocks[0].address);
    fixture.give(blocks[2].address);
    fixture.give(blocks[4].address);
    fixture.give(blocks[6].address);

    CHECK(fixture.get(600).address == blocks[2].address);
    CHECK(fixture.get(600).address == blocks[6].address);
    CHECK(fixture.get(600).address == blocks[4].address);  // 2048, split
    CHECK(fixture.get(512).address == blocks[4].address + 1024);
    CHECK(fixture.get(3000).address == blocks[0].address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a free block merges with both neighbours and the whole segment stays cached") {
    Fixture fixture;
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(1000);
    const BlockInfo c = fixture.get(1000);
    const BlockInfo d = fixture.get(1000);
    fixture.give(a.address);
    fixture.give(c.address);
    CHECK(fixture.pool.stats().inactive_split.all.current == 3);
    fixture.give(b.address);
    CHECK(fixture.pool.stats().inactive_split.all.current == 2);
    CHECK(fixture.get(3072).address == a.address);
    fixture.give(a.address);
    fixture.give(d.address);
    CHECK(fixture.pool.stats().inactive_split.all.current == 0);
    CHECK(fixture.reserved() == bytes_of(2 * mib));
    const BlockInfo whole = fixture.get(mib);
    CHECK(whole.address == a.segment);
    CHECK(fixture.pool.stats().num_device_alloc == 1);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("where memory is in pieces new large segments are coarser, if there is as much") {
    Fixture fixture(100 * mib);
    std::vector<BlockInfo> blocks(5);
    for (BlockInfo& block : blocks) {
        block = fixture.get(16 * mib);
    }
    fixture.give(blocks[1].address);
    fixture.give(blocks[3].address);
    fixture.observer.take_events();
    const auto reserved_by = [&](std::uint64_t bytes) {
        const std::int64_t before = fixture.pool.stats().reserved_bytes.all.current;
        fixture.get(bytes);
        return fixture.pool.stats().reserved_bytes.all.current - before;
    };
    CHECK(reserved_by(17 * mib) == bytes_of(18 * mib));  // 24 MiB are not there
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    fixture.pool.release_cached(false);
    CHECK(reserved_by(17 * mib) == bytes_of(18 * mib));  // nothing is free
    CHECK(fixture.problem() == sound);

    Fixture larger(gib);
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
    Fixture fixture;
    const BlockInfo kept = fixture.get(11 * mib);  // from 12 MiB
    CHECK(kept.size == 12 * mib);
    CHECK(kept.requested == 11 * mib);
    fixture.give(kept.address);
    const BlockInfo cut = fixture.get(11 * mib - 512);
    CHECK(cut.size == 11 * mib - 512);
    CHECK(fixture.pool.stats().inactive_split_bytes.large_pool.current == bytes_of(mib + 512));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("without coarse alignment the layout is PyTorch's") {
    Fixture fixture(80 * gib, unaligned());
    const BlockInfo a = fixture.get(4'000'000);
    const BlockInfo b = fixture.get(4'000'000);
    const BlockInfo c = fixture.get(4'000'000);
    CHECK(b.address == a.address + 4'000'256);
    CHECK(c.address == b.address + 4'000'256);
    fixture.give(b.address);
    const BlockInfo again = fixture.get(3'999'000);
    CHECK(again.address == b.address);
    CHECK(again.size == 4'000'256);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("blocks from 64 KiB begin on 64 KiB boundaries without being rounded to them") {
    Fixture fixture;
    SECTION("large: the same sizes are allocated again and again, the gap is never part of them") {
        std::vector<BlockInfo> tensors;
        for (int i = 0; i < 4; ++i) {
            tensors.push_back(fixture.get(4'000'000));
            CHECK(tensors.back().address % (64 * kib) == 0);
            CHECK(tensors.back().size == 4'000'256);
        }
        // Five, as without alignment; the last keeps the tail of the segment, as in PyTorch.
        tensors.push_back(fixture.get(4'000'000));
        CHECK(tensors.back().size == 20 * mib - 4 * 62 * 64 * kib);
        CHECK(fixture.reserved() == bytes_of(20 * mib));
        for (int round = 0; round < 3; ++round) {
            for (const std::size_t i : {1U, 3U, 2U}) {
                fixture.give(tensors[i].address);
            }
            for (const std::size_t i : {1U, 2U, 3U}) {
                tensors[i] = fixture.get(4'000'000);
                CHECK(tensors[i].size == 4'000'256);
            }
        }
        CHECK(fixture.reserved() == bytes_of(20 * mib));
    }
    SECTION("small: smaller requests fill the gaps") {
        const BlockInfo first = fixture.get(512);
        const BlockInfo big = fixture.get(100 * kib);
        CHECK(big.address == first.segment + 64 * kib);
        const BlockInfo gap = fixture.get(60 * kib);
        CHECK(gap.address == first.address + 512);
        const BlockInfo next = fixture.get(64 * kib);
        CHECK(next.address == first.segment + 192 * kib);
        CHECK(fixture.get(64 * kib - 512).address == first.segment + 256 * kib);
    }
    CHECK(fixture.problem() == sound);
}

TEST_CASE("find answers for every address of a live block and for no other") {
    Fixture fixture;
    const BlockInfo a = fixture.get(1000, 7);
    const BlockInfo b = fixture.get(5000);
    const auto interior = fixture.pool.find(a.address + 1023);
    REQUIRE(interior.has_value());
    CHECK(interior->address == a.address);
    CHECK(interior->requested == 1000);
    CHECK(interior->size == 1024);
    CHECK(interior->id == a.id);
    CHECK(interior->segment == a.segment);
    CHECK(interior->segment_size == 2 * mib);
    CHECK(fixture.pool.find(a.address + 1024)->id == b.id);
    CHECK_FALSE(fixture.pool.find(b.address + b.size).has_value());
    CHECK_FALSE(fixture.pool.find(0).has_value());
    CHECK_FALSE(fixture.pool.find(a.segment - 1).has_value());

    fixture.give(a.address);
    CHECK_FALSE(fixture.pool.find(a.address).has_value());
    CHECK(fixture.pool.owns(a.address));
    CHECK(fixture.pool.owns(a.segment + 2 * mib - 1));
    CHECK_FALSE(fixture.pool.owns(a.segment + 2 * mib));
    CHECK_FALSE(fixture.pool.owns(a.segment - 1));
    CHECK_FALSE(fixture.pool.owns(0));
    fixture.give(b.address);
    fixture.pool.release_cached(true);
    CHECK_FALSE(fixture.pool.owns(a.address));
}

TEST_CASE("an allocation of 0 bytes is served as the smallest block") {
    Fixture fixture;
    const BlockInfo block = fixture.get(0);
    CHECK(block.size == 512);
    CHECK(fixture.pool.stats().requested_bytes.all.current == 0);
    fixture.give(block.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("two pools give different ids and the same places") {
    Fixture one;
    Fixture two;
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
