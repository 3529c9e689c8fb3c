// Memory that goes back to the backend: by the pool's clock, and without the pool's lock.
#include <cstdint>
#include <utility>

#include "tests/unit/allocator/replay.hpp"
#include "tests/unit/allocator/world.hpp"

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
    World world(gib, trimming(100));
    const BlockInfo a = world.get(30 * mib);
    const BlockInfo b = world.get(1000);
    CHECK(world.pool.tick(1000) == 0);
    world.give(a.address);
    world.observer.take_events();

    CHECK(world.pool.tick(2000) == 0);  // first seen unused
    CHECK(world.pool.tick(2000) == 0);
    CHECK(world.pool.tick(2099) == 0);
    CHECK(world.observer.take_events() == std::vector<Seen>{{What::tick, 0, 0, 2000, 0}});
    CHECK(world.pool.tick(2100) == 30 * mib);
    CHECK(world.observer.take_events() ==
          std::vector<Seen>{{What::tick, 0, 0, 2100, 0},
                            {What::segment_free, a.segment, 30 * mib, 0, 0}});

    world.give(b.address);
    CHECK(world.pool.tick(2200) == 0);
    CHECK(world.pool.tick(9000) == 2 * mib);
    CHECK(world.reserved() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("use in between starts the wait anew") {
    World world(gib, trimming(100));
    const BlockInfo a = world.get(30 * mib);
    world.give(a.address);
    world.pool.tick(1000);
    CHECK(world.get(30 * mib).address == a.address);
    CHECK(world.pool.tick(2000) == 0);
    world.give(a.address);
    CHECK(world.pool.tick(3000) == 0);
    CHECK(world.pool.tick(2900) == 0);  // a clock that goes back changes nothing
    CHECK(world.pool.tick(3100) == 30 * mib);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("a tick looks at the fences: an idle program's frees complete by it") {
    World world(gib, trimming(100));
    const BlockInfo a = world.get(30 * mib);
    world.backend.access(a.id, a.address, a.size);
    world.give(a.address);
    CHECK(world.pool.tick(1000) == 0);
    CHECK(world.pool.tick(2000) == 0);
    world.backend.advance_all();
    CHECK(world.pool.tick(3000) == 0);
    CHECK(world.pool.tick(4000) == 30 * mib);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("without trim_after a tick does nothing") {
    World world(gib, trimming(0));
    world.give(world.get(30 * mib).address);
    world.observer.take_events();
    CHECK(world.pool.tick(1000) == 0);
    CHECK(world.pool.tick(1ULL << 60) == 0);
    CHECK(world.observer.take_events().empty());
    CHECK(world.reserved() == bytes_of(30 * mib));
}

TEST_CASE("while the backend takes a segment back the pool can be used") {
    PoolOptions options = trimming(1);
    options.garbage_collection_threshold = 0.25;
    options.total_memory = 400 * mib;
    World world(500 * mib, options);
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
    const BlockInfo first = world.get(60 * mib);
    const BlockInfo second = world.get(60 * mib);
    world.give(first.address);
    world.give(second.address);
    world.pool.tick(1);
    bool inside = false;
    world.backend.set_segment_free_hook([&] {
        if (std::exchange(inside, true)) {
            return;
        }
        // As another thread would: with the lock held, this would never return.
        CHECK(world.reserved() == 0);
        CHECK_FALSE(world.pool.owns(first.address));
        world.get(30 * mib);
        CHECK(world.pool.validate() == sound);
    });
    if (way == 0) {
        CHECK(world.pool.release_cached(false) == 120 * mib);
    } else if (way == 1) {
        CHECK(world.pool.tick(1000) == 120 * mib);
    } else if (way == 2) {
        CHECK(world.get(70 * mib).segment_size == 70 * mib);
        CHECK(world.pool.stats().num_alloc_retries == 0);
    } else {
        CHECK(world.get(450 * mib).segment_size == 450 * mib);
    }
    CHECK(inside);
    CHECK(world.problem() == sound);
    CHECK(problem_of_replay(options, world.observer.events(), 500 * mib) == sound);
}

TEST_CASE("an allocation takes what came free while memory went back for it") {
    World world(100 * mib, trimming(0));
    const BlockInfo a = world.get(60 * mib);
    const BlockInfo b = world.get(20 * mib);
    world.give(b.address);
    bool freed = false;
    world.backend.set_segment_free_hook([&] {
        if (!std::exchange(freed, true)) {
            world.give(a.address);
        }
    });
    const BlockInfo c = world.get(60 * mib);
    CHECK(freed);
    CHECK(c.address == a.address);
    CHECK(world.pool.stats().num_device_alloc == 2);
    CHECK(world.problem() == sound);
    CHECK(problem_of_replay(trimming(0), world.observer.events(), 0) == sound);
}

TEST_CASE("everything may be abandoned while a segment goes back") {
    World world(100 * mib, trimming(0));
    const BlockInfo unused = world.get(60 * mib);
    world.get(1000);
    world.give(unused.address);
    world.backend.set_segment_free_hook([&] {
        world.pool.abandon();
        world.observer.forget();
    });
    CHECK(world.pool.release_cached(false) == 60 * mib);
    CHECK(world.reserved() == 0);
    CHECK(world.problem() == sound);
}

TEST_CASE("what a lost context had is not given back afterwards") {
    World world(200 * mib, trimming(0));
    const BlockInfo unused[] = {world.get(60 * mib), world.get(60 * mib)};
    for (const BlockInfo& block : unused) {
        world.give(block.address);
    }
    const std::uint64_t before = world.backend.calls(SimulatedBackend::Call::segment_free);
    world.backend.set_segment_free_hook([&] {
        world.pool.abandon();
        world.observer.forget();
    });
    world.pool.release_cached(false);
    CHECK(world.backend.calls(SimulatedBackend::Call::segment_free) == before + 1);
    CHECK(world.problem() == sound);
}

}  // namespace memlab::allocator::testing
