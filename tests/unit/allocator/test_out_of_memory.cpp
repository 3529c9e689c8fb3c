// When the backend has no more: pending blocks, the cache, one retry, the true error.
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/unit/allocator/world.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;
using What = Seen::What;
constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory, 2};

}  // namespace

TEST_CASE("out of memory: the cache is released and the allocation tried once more") {
    World world(100 * mib);
    const BlockInfo a = world.get(40 * mib);
    const BlockInfo b = world.get(40 * mib);
    world.give(a.address);
    world.give(b.address);
    world.observer.take_events();

    const BlockInfo c = world.get(90 * mib, 5);
    const std::vector<Seen> expected = {
        {What::sync, 0, 0, 0, 0},
        {What::alloc_retry, 0, 0, 90 * mib, 5},
        {What::segment_free, a.address, 40 * mib, 0, 0},
        {What::segment_free, b.address, 40 * mib, 0, 0},
        {What::segment_alloc, c.segment, 90 * mib, 0, 5},
        {What::alloc, c.address, 90 * mib, 90 * mib, 5},
    };
    CHECK(world.observer.take_events() == expected);
    CHECK(world.pool.stats().num_alloc_retries == 1);
    CHECK(world.pool.stats().num_ooms == 0);
    world.give(c.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("out of memory: the backend's own error, and the largest free block as it was before") {
    World world(100 * mib);
    const BlockInfo a = world.get(40 * mib);
    world.give(a.address);
    const BlockInfo kept = world.get(4'000'000);
    CHECK(kept.segment == a.segment);

    // 40 MiB, less the block and its alignment gap.
    const AllocResult result = world.pool.allocate(90 * mib, 0);
    CHECK(result.status.kind == BackendStatus::Kind::out_of_memory);
    CHECK(result.status.code == 2);
    CHECK(result.largest_free_block == 40 * mib - 62 * 64 * kib);
    CHECK(world.backend.calls(Call::segment_alloc) == 3);
    CHECK(world.pool.stats().num_ooms == 1);
    CHECK(world.pool.stats().num_alloc_retries == 1);
    CHECK(world.problem() == sound);

    world.give(kept.address);
    const AllocResult second = world.pool.allocate(101 * mib, 0);
    CHECK(second.largest_free_block == 40 * mib);
    CHECK(world.reserved() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("the error of the retry is the one that is returned") {
    World world(100 * mib);
    world.backend.fail(Call::segment_alloc, 1, out_of_memory);
    world.backend.fail(Call::segment_alloc, 2, {BackendStatus::Kind::error, 700});
    const AllocResult result = world.pool.allocate(mib, 0);
    CHECK(result.status.kind == BackendStatus::Kind::error);
    CHECK(result.status.code == 700);
    CHECK(world.pool.stats().num_ooms == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("another error than out of memory is returned without touching the cache") {
    World world(gib);
    const BlockInfo a = world.get(40 * mib);
    world.give(a.address);
    world.backend.fail(Call::segment_alloc, 1, {BackendStatus::Kind::error, 201});
    const AllocResult result = world.pool.allocate(90 * mib, 0);
    CHECK(result.status.code == 201);
    CHECK(world.reserved() == bytes_of(40 * mib));
    CHECK(world.pool.stats().num_alloc_retries == 0);
    CHECK(world.pool.stats().num_ooms == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("a size that cannot exist is out of memory without asking the backend") {
    World world(gib);
    const BlockInfo a = world.get(40 * mib);
    world.give(a.address);
    constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t bytes : {last, last - 1, last - 511, last - 2 * mib + 2}) {
        const AllocResult result = world.pool.allocate(bytes, 0);
        CHECK(result.status.kind == BackendStatus::Kind::out_of_memory);
        CHECK(result.status.code == 2);
        CHECK(result.largest_free_block == 40 * mib);
    }
    CHECK(world.backend.calls(Call::segment_alloc) == 1);
    CHECK(world.reserved() == bytes_of(40 * mib));
    CHECK(world.pool.stats().num_ooms == 4);
    CHECK(world.pool.allocate(1ULL << 60, 0).status.code == 2);
    CHECK(world.backend.calls(Call::segment_alloc) == 3);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("a pending block is used only when there is no other memory, behind its fence") {
    World world(100 * mib, with(FreeSync::never));
    const BlockInfo a = world.get(40 * mib);
    const BlockInfo b = world.get(40 * mib);
    world.backend.access(a.id, a.address, a.size);
    world.give(a.address);
    world.backend.access(b.id, b.address, b.size);
    world.give(b.address);

    // First growth, although `a` would fit.
    const BlockInfo fresh = world.get(20 * mib);
    CHECK(fresh.segment != a.segment);
    CHECK(world.backend.calls(Call::fence_wait_device) == 0);

    // Then the oldest that fits, without stopping the host.
    const BlockInfo c = world.get(39 * mib);
    CHECK(c.address == a.address);
    CHECK(world.backend.calls(Call::fence_wait_device) == 1);
    CHECK(world.backend.calls(Call::fence_wait_host) == 0);
    CHECK(world.backend.completed() == 0);
    CHECK(world.pool.stats().num_sync_all_streams == 0);
    CHECK(world.pool.stats().num_alloc_retries == 0);
    world.backend.access(c.id, c.address, c.size);

    // `b`'s work is not ordered: its block still waits.
    CHECK(world.active() == bytes_of(20 * mib + 40 * mib + c.size));
    world.give(c.address);
    world.give(fresh.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("ordering the device behind a fence frees the older blocks too") {
    World world(100 * mib, with(FreeSync::never));
    const BlockInfo small = world.get(1000);
    const BlockInfo large = world.get(80 * mib);
    world.backend.access(small.id, small.address, small.size);
    world.give(small.address);
    world.backend.access(large.id, large.address, large.size);
    world.give(large.address);
    const BlockInfo again = world.get(80 * mib);
    CHECK(again.address == large.address);
    CHECK(world.active() == bytes_of(again.size));
    const BlockInfo reused = world.get(1000);
    CHECK(reused.address == small.address);
    world.backend.access(again.id, again.address, again.size);
    world.backend.access(reused.id, reused.address, reused.size);
    CHECK(world.problem() == sound);
}

TEST_CASE("pending blocks that fit only together are waited for, and then no segment is released") {
    World world(40 * mib, with(FreeSync::never));
    const BlockInfo a = world.get(20 * mib);
    world.give(a.address);
    std::vector<BlockInfo> parts;
    for (int i = 0; i < 2; ++i) {
        parts.push_back(world.get(9 * mib));
        CHECK(parts.back().segment == a.segment);
    }
    const BlockInfo rest = world.get(20 * mib);
    for (const BlockInfo& part : parts) {
        world.backend.access(part.id, part.address, part.size);
        world.give(part.address);
    }
    world.observer.take_events();
    const BlockInfo joined = world.get(15 * mib);
    CHECK(joined.segment == a.segment);
    CHECK(world.observer.take_kinds() ==
          std::vector<What>{What::sync, What::free_completed, What::free_completed, What::alloc});
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    world.give(joined.address);
    world.give(rest.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("when the device cannot be ordered the host waits") {
    World world(100 * mib, with(FreeSync::never));
    const BlockInfo a = world.get(80 * mib);
    world.backend.access(a.id, a.address, a.size);
    world.give(a.address);
    world.backend.fail(Call::fence_wait_device, 1, {BackendStatus::Kind::error, 900});
    const BlockInfo b = world.get(80 * mib);
    CHECK(b.address == a.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    CHECK(world.problem() == sound);
}

TEST_CASE("a segment of a small pending block goes back after the wait") {
    World world(40 * mib, with(FreeSync::never));
    const BlockInfo a = world.get(20 * mib);
    world.backend.access(a.id, a.address, a.size);
    world.give(a.address);
    const BlockInfo b = world.get(40 * mib);
    CHECK(b.size == 40 * mib);
    CHECK(world.pool.stats().num_alloc_retries == 1);
    world.backend.access(b.id, b.address, b.size);
    world.give(b.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("deferred blocks are out of reach, even out of memory") {
    World world(40 * mib);
    const BlockInfo a = world.get(40 * mib);
    world.give(a.address, FenceTiming::deferred);
    CHECK(world.pool.allocate(40 * mib, 0).status.code == 2);
    world.pool.fence_deferred();
    CHECK(world.get(40 * mib).address == a.address);
    CHECK(world.problem() == sound);
}

TEST_CASE("a segment that the backend does not take back is forgotten all the same") {
    World world(100 * mib);
    const BlockInfo a = world.get(40 * mib);
    const BlockInfo b = world.get(50 * mib);
    world.give(a.address);
    world.give(b.address);
    world.backend.fail(Call::segment_free, 1, {BackendStatus::Kind::error, 700});
    CHECK(world.pool.release_cached(false) == 50 * mib);
    CHECK(world.reserved() == 0);
    CHECK_FALSE(world.pool.owns(a.address));
    CHECK(world.problem() == sound);
}

TEST_CASE("a segment that cannot be is handed back and not used") {
    class Odd final : public DeviceBackend {
      public:
        BackendStatus segment_alloc(std::uint64_t, Address* address) override {
            *address = next;
            return {};
        }
        BackendStatus segment_free(Address address, std::uint64_t) override {
            freed = address;
            return {};
        }
        BackendStatus fence_record(Fence* fence) override {
            *fence = 0;
            return {};
        }
        FenceState fence_query(Fence) override { return FenceState::complete; }
        BackendStatus fence_wait_device(Fence) override { return {}; }
        BackendStatus fence_wait_host(Fence) override { return {}; }
        void fence_release(Fence) override {}

        Address next = 0;
        Address freed = 1;
    };
    Odd backend;
    Pool pool({}, backend, nullptr);
    backend.next = 64 * mib;
    REQUIRE(pool.allocate(30 * mib, 0).status.ok());
    const Address bad[] = {
        0,
        64 * mib,
        64 * mib + 2 * mib,
        40 * mib,
        128 * mib + 1,
        0 - 2 * mib,
        std::numeric_limits<std::uint64_t>::max() - 511,
    };
    for (const Address address : bad) {
        backend.next = address;
        const AllocResult result = pool.allocate(30 * mib, 0);
        CAPTURE(address);
        CHECK(result.status.kind == BackendStatus::Kind::error);
        CHECK(result.status.code == unusable_segment_code);
        CHECK(backend.freed == address);
    }
    backend.next = 34 * mib;
    CHECK(pool.allocate(30 * mib, 0).status.ok());
    backend.next = 94 * mib;
    CHECK(pool.allocate(30 * mib, 0).status.ok());
    CHECK(pool.stats().segment.all.current == 3);
    CHECK(pool.validate() == sound);
}

}  // namespace memlab::allocator::testing
