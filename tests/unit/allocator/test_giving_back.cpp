// Freeing memory to the backend: by the pool's clock, and without the pool's lock.
#include <cstdint>
#include <utility>

#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {

namespace {

using What = Seen::What;

PoolOptions trimming(std::uint64_t after_ns) {
    PoolOptions options = with(FreeSync::never);
    options.trim_after_ns = after_ns;
    return options;
}

}  // namespace

TEST_CASE("a segment goes back when it was unused from one tick to another") {
    Fixture fixture(gib, trimming(100));
    const BlockInfo a = fixture.get(30 * mib);
    const BlockInfo b = fixture.get(1000);
    CHECK(fixture.pool.tick(1000) == 0);
    fixture.give(a.address);
    fixture.observer.take_events();

    CHECK(fixture.pool.tick(2000) == 0);  // first seen unused
    CHECK(fixture.pool.tick(2000) == 0);
    CHECK(fixture.pool.tick(2099) == 0);
    CHECK(fixture.observer.take_events() == std::vector<Seen>{{What::tick, 0, 0, 2000, 0}});
    CHECK(fixture.pool.tick(2100) == 30 * mib);
    CHECK(fixture.observer.take_events() ==
          std::vector<Seen>{{What::tick, 0, 0, 2100, 0},
                            {What::segment_free, a.segment, 30 * mib, 0, 0}});

    fixture.give(b.address);
    CHECK(fixture.pool.tick(2200) == 0);
    CHECK(fixture.pool.tick(9000) == 2 * mib);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("use in between starts the wait again") {
    Fixture fixture(gib, trimming(100));
    const BlockInfo a = fixture.get(30 * mib);
    fixture.give(a.address);
    fixture.pool.tick(1000);
    CHECK(fixture.get(30 * mib).address == a.address);
    CHECK(fixture.pool.tick(2000) == 0);
    fixture.give(a.address);
    CHECK(fixture.pool.tick(3000) == 0);
    CHECK(fixture.pool.tick(2900) == 0);  // a clock that runs backwards has no effect
    CHECK(fixture.pool.tick(3100) == 30 * mib);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a tick looks at the fences: an idle program's frees complete by it") {
    Fixture fixture(gib, trimming(100));
    const BlockInfo a = fixture.get(30 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    CHECK(fixture.pool.tick(1000) == 0);
    CHECK(fixture.pool.tick(2000) == 0);
    fixture.backend.advance_all();
    CHECK(fixture.pool.tick(3000) == 0);
    CHECK(fixture.pool.tick(4000) == 30 * mib);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("without trim_after a tick does nothing") {
    Fixture fixture(gib, trimming(0));
    fixture.give(fixture.get(30 * mib).address);
    fixture.observer.take_events();
    CHECK(fixture.pool.tick(1000) == 0);
    CHECK(fixture.pool.tick(1ULL << 60) == 0);
    CHECK(fixture.observer.take_events().empty());
    CHECK(fixture.reserved() == bytes_of(30 * mib));
}

TEST_CASE("with backoff, memory that is needed again soon after a trim is kept for twice as long") {
    constexpr std::uint64_t second = 1'000'000'000;
    PoolOptions options = trimming(second);
    options.trim_backoff = true;
    Fixture fixture(gib, options);
    // Nanoseconds from the free to the trim, in ticks of half a second.
    std::uint64_t now = 1;
    const auto kept = [&](std::uint64_t needed_after) {
        now += needed_after;
        const BlockInfo block = fixture.get(30 * mib);
        CHECK(fixture.pool.tick(now) == 0);
        fixture.give(block.address);
        for (std::uint64_t waited = 0;; waited += second / 2) {
            if (fixture.pool.tick(now) != 0) {
                return waited;
            }
            now += second / 2;
        }
    };
    CHECK(kept(0) == second);
    CHECK(kept(5 * second) == 2 * second);
    CHECK(kept(10 * second) == 4 * second);
    CHECK(kept(11 * second) == 4 * second);
    CHECK(kept(0) == 8 * second);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("the time to a trim does not depend on what happened before") {
    Fixture fixture(gib, trimming(100));
    for (std::uint64_t now = 1000; now < 2000; now += 110) {
        fixture.give(fixture.get(30 * mib).address);
        CHECK(fixture.pool.tick(now) == 0);
        CHECK(fixture.pool.tick(now + 99) == 0);
        CHECK(fixture.pool.tick(now + 100) == 30 * mib);
    }
    CHECK(fixture.problem_at_end() == sound);
    CHECK(problem_of_replay(trimming(100), fixture.observer.events(), gib) == sound);
}

TEST_CASE("a pool says when a tick has something to do") {
    Fixture fixture(gib, trimming(100));
    fixture.pool.tick(10);
    CHECK(fixture.pool.next_tick() == Pool::no_tick);
    const BlockInfo held = fixture.get(1000);
    const BlockInfo a = fixture.get(30 * mib);
    fixture.pool.tick(20);
    // The rest of the small block's page cannot go back.
    CHECK(fixture.pool.next_tick() == Pool::no_tick);

    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);  // pending
    CHECK(fixture.pool.next_tick() == 0);
    fixture.pool.tick(1000);
    CHECK(fixture.pool.next_tick() == 0);
    fixture.backend.advance_all();
    fixture.pool.tick(2000);
    CHECK(fixture.pool.next_tick() == 0);  // what this tick has left
    fixture.pool.tick(2050);
    CHECK(fixture.pool.next_tick() == 2100);
    CHECK(fixture.pool.tick(2100) == 30 * mib);
    fixture.pool.tick(2150);
    CHECK(fixture.pool.next_tick() == Pool::no_tick);

    const BlockInfo b = fixture.get(30 * mib);
    CHECK(fixture.pool.free(b.address, 0, FenceTiming::deferred).kind == FreeResult::Kind::freed);
    fixture.pool.tick(3000);
    CHECK(fixture.pool.next_tick() == 0);
    fixture.pool.fence_deferred();
    fixture.give(held.address);
    CHECK(fixture.problem_at_end() == sound);

    Fixture keeping(gib, trimming(0));
    keeping.give(keeping.get(30 * mib).address);
    CHECK(keeping.pool.next_tick() == Pool::no_tick);
}

TEST_CASE("while the backend takes a segment back the pool can be used") {
    PoolOptions options = trimming(1);
    options.garbage_collection_threshold = 0.25;
    options.total_memory = 400 * mib;
    Fixture fixture(500 * mib, options);
    int way = 0;
    SECTION("release_cached") {
        way = 0;
    }
    SECTION("tick") {
        way = 1;
    }
    SECTION("garbage collection") {
        way = 2;
    }
    SECTION("out of memory") {
        way = 3;
    }
    CAPTURE(way);
    const BlockInfo first = fixture.get(60 * mib);
    const BlockInfo second = fixture.get(60 * mib);
    fixture.give(first.address);
    fixture.give(second.address);
    fixture.pool.tick(1);
    bool inside = false;
    fixture.backend.set_segment_free_hook([&] {
        if (std::exchange(inside, true)) {
            return;
        }
        // As another thread would: with the lock held, this would never return.
        CHECK(fixture.reserved() == 0);
        CHECK_FALSE(fixture.pool.owns(first.address));
        fixture.get(30 * mib);
        CHECK(fixture.pool.validate() == sound);
    });
    if (way == 0) {
        CHECK(fixture.pool.release_cached(false) == 120 * mib);
    } else if (way == 1) {
        CHECK(fixture.pool.tick(1000) == 120 * mib);
    } else if (way == 2) {
        CHECK(fixture.get(70 * mib).segment_size == 70 * mib);
        CHECK(fixture.pool.stats().num_alloc_retries == 0);
    } else {
        CHECK(fixture.get(450 * mib).segment_size == 450 * mib);
    }
    CHECK(inside);
    CHECK(fixture.problem() == sound);
    CHECK(problem_of_replay(options, fixture.observer.events(), 500 * mib) == sound);
}

TEST_CASE("an allocation takes what came free while memory went back for it") {
    Fixture fixture(100 * mib, trimming(0));
    const BlockInfo a = fixture.get(60 * mib);
    const BlockInfo b = fixture.get(20 * mib);
    fixture.give(b.address);
    bool freed = false;
    fixture.backend.set_segment_free_hook([&] {
        if (!std::exchange(freed, true)) {
            fixture.give(a.address);
        }
    });
    const BlockInfo c = fixture.get(60 * mib);
    CHECK(freed);
    CHECK(c.address == a.address);
    CHECK(fixture.pool.stats().num_device_alloc == 2);
    CHECK(fixture.problem() == sound);
    CHECK(problem_of_replay(trimming(0), fixture.observer.events(), 0) == sound);
}

TEST_CASE("everything may be abandoned while a segment goes back") {
    Fixture fixture(100 * mib, trimming(0));
    const BlockInfo unused = fixture.get(60 * mib);
    fixture.get(1000);
    fixture.give(unused.address);
    fixture.backend.set_segment_free_hook([&] {
        fixture.pool.abandon();
        fixture.observer.forget();
    });
    CHECK(fixture.pool.release_cached(false) == 60 * mib);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("what a lost context had is not given back afterwards") {
    Fixture fixture(200 * mib, trimming(0));
    const BlockInfo unused[] = {fixture.get(60 * mib), fixture.get(60 * mib)};
    for (const BlockInfo& block : unused) {
        fixture.give(block.address);
    }
    const std::uint64_t before = fixture.backend.calls(SimulatedBackend::Call::segment_free);
    fixture.backend.set_segment_free_hook([&] {
        fixture.pool.abandon();
        fixture.observer.forget();
    });
    fixture.pool.release_cached(false);
    CHECK(fixture.backend.calls(SimulatedBackend::Call::segment_free) == before + 1);
    CHECK(fixture.problem() == sound);
}

}  // namespace memlab::allocator::testing
