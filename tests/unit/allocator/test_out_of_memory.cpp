// When the backend is out of memory: pending blocks, the cache, one retry, the backend's error.
#include <cstdint>
#include <limits>
#include <vector>

#include "tests/support/null_backend.hpp"
#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;
using What = Seen::What;
constexpr BackendStatus out_of_memory{BackendStatus::Kind::out_of_memory, 2};

}  // namespace

TEST_CASE("out of memory: the cache is released and the allocation tried once more") {
    Fixture fixture(100 * mib);
    const BlockInfo a = fixture.get(40 * mib);
    const BlockInfo b = fixture.get(40 * mib);
    fixture.give(a.address);
    fixture.give(b.address);
    fixture.observer.take_events();

    const BlockInfo c = fixture.get(90 * mib, 5);
    const std::vector<Seen> expected = {
        {What::sync, 0, 0, 0, 0},
        {What::alloc_retry, 0, 0, 90 * mib, 5},
        {What::segment_free, a.address, 40 * mib, 0, 0},
        {What::segment_free, b.address, 40 * mib, 0, 0},
        {What::segment_alloc, c.segment, 90 * mib, 0, 5},
        {What::alloc, c.address, 90 * mib, 90 * mib, 5},
    };
    CHECK(fixture.observer.take_events() == expected);
    CHECK(fixture.pool.stats().num_alloc_retries == 1);
    CHECK(fixture.pool.stats().num_ooms == 0);
    fixture.give(c.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("out of memory: the backend's own error, and the largest free block as it was before") {
    Fixture fixture(100 * mib);
    const BlockInfo a = fixture.get(40 * mib);
    fixture.give(a.address);
    const BlockInfo kept = fixture.get(4'000'000);
    CHECK(kept.segment == a.segment);

    // 40 MiB, less the block and its alignment gap.
    const AllocResult result = fixture.pool.allocate(90 * mib, 0);
    CHECK(result.status.kind == BackendStatus::Kind::out_of_memory);
    CHECK(result.status.code == 2);
    CHECK(result.largest_free_block == 40 * mib - 62 * 64 * kib);
    CHECK(fixture.backend.calls(Call::segment_alloc) == 3);
    CHECK(fixture.pool.stats().num_ooms == 1);
    CHECK(fixture.pool.stats().num_alloc_retries == 1);
    CHECK(fixture.problem() == sound);

    fixture.give(kept.address);
    const AllocResult second = fixture.pool.allocate(101 * mib, 0);
    CHECK(second.largest_free_block == 40 * mib);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("the error of the retry is the one that is returned") {
    Fixture fixture(100 * mib);
    fixture.backend.fail(Call::segment_alloc, 1, out_of_memory);
    fixture.backend.fail(Call::segment_alloc, 2, {BackendStatus::Kind::error, 700});
    const AllocResult result = fixture.pool.allocate(mib, 0);
    CHECK(result.status.kind == BackendStatus::Kind::error);
    CHECK(result.status.code == 700);
    CHECK(fixture.pool.stats().num_ooms == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("another error than out of memory is returned without touching the cache") {
    Fixture fixture(gib);
    const BlockInfo a = fixture.get(40 * mib);
    fixture.give(a.address);
    fixture.backend.fail(Call::segment_alloc, 1, {BackendStatus::Kind::error, 201});
    const AllocResult result = fixture.pool.allocate(90 * mib, 0);
    CHECK(result.status.code == 201);
    CHECK(fixture.reserved() == bytes_of(40 * mib));
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    CHECK(fixture.pool.stats().num_ooms == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a size that cannot exist is out of memory without asking the backend") {
    Fixture fixture(gib);
    const BlockInfo a = fixture.get(40 * mib);
    fixture.give(a.address);
    constexpr std::uint64_t last = std::numeric_limits<std::uint64_t>::max();
    for (const std::uint64_t bytes : {last, last - 1, last - 511, last - 2 * mib + 2}) {
        const AllocResult result = fixture.pool.allocate(bytes, 0);
        CHECK(result.status.kind == BackendStatus::Kind::out_of_memory);
        CHECK(result.status.code == 2);
        CHECK(result.largest_free_block == 40 * mib);
    }
    CHECK(fixture.backend.calls(Call::segment_alloc) == 1);
    CHECK(fixture.reserved() == bytes_of(40 * mib));
    CHECK(fixture.pool.stats().num_ooms == 4);
    CHECK(fixture.pool.allocate(1ULL << 60, 0).status.code == 2);
    CHECK(fixture.backend.calls(Call::segment_alloc) == 3);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("what could not be served with all the cache costs neither the cache nor a wait") {
    PoolOptions options = with(FreeSync::never);
    SECTION("segments") {}
    SECTION("expandable ranges") {
        options.expandable = true;
    }
    Fixture fixture(100 * mib, options);
    fixture.backend.set_knows_available(true);
    const BlockInfo cached = fixture.get(30 * mib);
    const BlockInfo kept = fixture.get(30 * mib);
    fixture.give(cached.address);
    const std::uint64_t reserved = 60 * mib;
    CHECK(fixture.reserved() == bytes_of(reserved));

    // 40 MiB are the device's, 30 the cache's.
    CHECK(fixture.pool.allocate(80 * mib, 0).status.code == 2);
    CHECK(fixture.reserved() == bytes_of(reserved));
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    const BlockInfo most = fixture.get(70 * mib);
    CHECK(fixture.pool.stats().num_alloc_retries == (options.expandable ? 0 : 1));
    fixture.give(most.address);
    CHECK(fixture.pool.release_cached(true) == 70 * mib);

    // What pending frees will give counts, so they are waited for; nothing else would help.
    fixture.backend.access(kept.id, kept.address, kept.size);
    fixture.give(kept.address);
    CHECK(fixture.pool.allocate(101 * mib, 0).status.code == 2);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
    fixture.give(fixture.get(100 * mib).address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a pending block is used only when there is no other memory, behind its fence") {
    Fixture fixture(100 * mib, with(FreeSync::never));
    const BlockInfo a = fixture.get(40 * mib);
    const BlockInfo b = fixture.get(40 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    fixture.backend.access(b.id, b.address, b.size);
    fixture.give(b.address);

    // First growth, although `a` would fit.
    const BlockInfo fresh = fixture.get(20 * mib);
    CHECK(fresh.segment != a.segment);
    CHECK(fixture.backend.calls(Call::fence_wait_device) == 0);

    // Then the oldest that fits, without stopping the host.
    const BlockInfo c = fixture.get(39 * mib);
    CHECK(c.address == a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_device) == 1);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
    CHECK(fixture.backend.completed() == 0);
    CHECK(fixture.pool.stats().num_sync_all_streams == 0);
    CHECK(fixture.pool.stats().num_alloc_retries == 0);
    fixture.backend.access(c.id, c.address, c.size);

    // `b`'s work is not ordered: its block still waits.
    CHECK(fixture.active() == bytes_of(20 * mib + 40 * mib + c.size));
    fixture.give(c.address);
    fixture.give(fresh.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("ordering the device behind a fence frees the older blocks too") {
    Fixture fixture(100 * mib, with(FreeSync::never));
    const BlockInfo small = fixture.get(1000);
    const BlockInfo large = fixture.get(80 * mib);
    fixture.backend.access(small.id, small.address, small.size);
    fixture.give(small.address);
    fixture.backend.access(large.id, large.address, large.size);
    fixture.give(large.address);
    const BlockInfo again = fixture.get(80 * mib);
    CHECK(again.address == large.address);
    CHECK(fixture.active() == bytes_of(again.size));
    const BlockInfo reused = fixture.get(1000);
    CHECK(reused.address == small.address);
    fixture.backend.access(again.id, again.address, again.size);
    fixture.backend.access(reused.id, reused.address, reused.size);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("pending blocks that fit only together are waited for, and then no segment is released") {
    Fixture fixture(40 * mib, with(FreeSync::never));
    const BlockInfo a = fixture.get(20 * mib);
    fixture.give(a.address);
    std::vector<BlockInfo> parts;
    for (int i = 0; i < 2; ++i) {
        parts.push_back(fixture.get(9 * mib));
        CHECK(parts.back().segment == a.segment);
    }
    const BlockInfo rest = fixture.get(20 * mib);
    for (const BlockInfo& part : parts) {
        fixture.backend.access(part.id, part.address, part.size);
        fixture.give(part.address);
    }
    fixture.observer.take_events();
    const BlockInfo joined = fixture.get(15 * mib);
    CHECK(joined.segment == a.segment);
    CHECK(fixture.observer.take_kinds() ==
          std::vector<What>{What::sync, What::free_completed, What::free_completed, What::alloc});
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    fixture.give(joined.address);
    fixture.give(rest.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("when the device cannot be ordered the host waits") {
    Fixture fixture(100 * mib, with(FreeSync::never));
    const BlockInfo a = fixture.get(80 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    fixture.backend.fail(Call::fence_wait_device, 1, {BackendStatus::Kind::error, 900});
    const BlockInfo b = fixture.get(80 * mib);
    CHECK(b.address == a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a segment of a small pending block goes back after the wait") {
    Fixture fixture(40 * mib, with(FreeSync::never));
    const BlockInfo a = fixture.get(20 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    const BlockInfo b = fixture.get(40 * mib);
    CHECK(b.size == 40 * mib);
    CHECK(fixture.pool.stats().num_alloc_retries == 1);
    fixture.backend.access(b.id, b.address, b.size);
    fixture.give(b.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("deferred blocks are out of reach, even out of memory") {
    Fixture fixture(40 * mib);
    const BlockInfo a = fixture.get(40 * mib);
    fixture.give(a.address, FenceTiming::deferred);
    CHECK(fixture.pool.allocate(40 * mib, 0).status.code == 2);
    fixture.pool.fence_deferred();
    CHECK(fixture.get(40 * mib).address == a.address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a segment that the backend does not take back is forgotten anyway") {
    Fixture fixture(100 * mib);
    const BlockInfo a = fixture.get(40 * mib);
    const BlockInfo b = fixture.get(50 * mib);
    fixture.give(a.address);
    fixture.give(b.address);
    fixture.backend.fail(Call::segment_free, 1, {BackendStatus::Kind::error, 700});
    CHECK(fixture.pool.release_cached(false) == 50 * mib);
    CHECK(fixture.reserved() == 0);
    CHECK_FALSE(fixture.pool.owns(a.address));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a segment that cannot be is handed back and not used") {
    class Odd final : public NullBackend {
      public:
        BackendStatus segment_alloc(std::uint64_t, Address* address) override {
            *address = next;
            return {};
        }
        BackendStatus segment_free(Address address, std::uint64_t) override {
            freed = address;
            return {};
        }
        BackendStatus range_reserve(Address*, std::uint64_t) override {
            return {BackendStatus::Kind::error, not_supported_code};
        }

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
