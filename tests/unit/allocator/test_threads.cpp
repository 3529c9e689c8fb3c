// Many threads on one pool, with another thread that drives the device: the events must be
// consistent, no memory may be used before its fence, and nothing may leak. Intended for
// ThreadSanitizer.
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"
#include "tests/unit/allocator/random.hpp"
#include "tests/unit/allocator/replay.hpp"

namespace memlab::allocator::testing {

namespace {

struct Outcome {
    std::string problem;
    std::uint64_t served = 0;
    std::uint64_t refused = 0;
};

void work(Fixture& fixture, std::uint64_t seed, int steps, Outcome& outcome) {
    Random random(seed);
    std::vector<BlockInfo> live;
    const auto complain = [&](const char* text) { outcome.problem = text; };
    const auto free_at = [&](std::size_t index) {
        const BlockInfo block = live[index];
        live[index] = live.back();
        live.pop_back();
        const auto timing = random.one_in(16) ? FenceTiming::deferred : FenceTiming::now;
        const FreeResult result = fixture.pool.free(block.address, 0, timing);
        if (result.kind != FreeResult::Kind::freed || !result.status.ok()) {
            complain("a live block could not be freed");
        }
    };
    for (int i = 0; i < steps && outcome.problem.empty(); ++i) {
        const std::uint64_t choice = random.below(32);
        if (choice < 15) {
            const AllocResult result = fixture.pool.allocate(random_size(random), 0);
            if (result.status.ok()) {
                ++outcome.served;
                live.push_back(result.block);
                fixture.backend.access(result.block.id, result.block.address, result.block.size);
            } else if (result.status.kind == BackendStatus::Kind::out_of_memory) {
                ++outcome.refused;
            } else {
                complain("an allocation failed with an error");
            }
        } else if (choice < 28) {
            if (!live.empty()) {
                free_at(random.below(live.size()));
            }
        } else if (choice == 28) {
            fixture.pool.release_cached(random.one_in(2));
        } else if (choice == 29) {
            fixture.pool.fence_deferred();
        } else if (!live.empty()) {
            const BlockInfo& block = live[random.below(live.size())];
            const auto found = fixture.pool.find(block.address + block.size - 1);
            if (!found || found->id != block.id || !fixture.pool.owns(block.address)) {
                complain("a live block was not found");
            }
        } else if (fixture.pool.stats().reserved_bytes.all.current < 0) {
            complain("less than nothing is reserved");
        }
    }
    while (!live.empty()) {
        free_at(live.size() - 1);
    }
}

void stress(FreeSync sync, std::uint64_t seed, int steps) {
    constexpr int workers = 4;
    Fixture fixture(128 * mib, with(sync));
    fixture.backend.set_host_wait(SimulatedBackend::HostWait::blocks);
    std::atomic<bool> stop{false};
    std::thread clock([&] {
        while (!stop.load()) {
            fixture.backend.advance_to(fixture.backend.completed() + 3);
            std::this_thread::yield();
        }
    });
    Outcome outcomes[workers];
    std::vector<std::thread> threads;
    threads.reserve(workers);
    for (int i = 0; i < workers; ++i) {
        threads.emplace_back(work, std::ref(fixture),
                             seed * workers + static_cast<std::uint64_t>(i), steps,
                             std::ref(outcomes[i]));
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
    std::uint64_t served = 0;
    for (const Outcome& outcome : outcomes) {
        CHECK(outcome.problem == sound);
        served += outcome.served;
    }
    CHECK(served > 0);
    CHECK(fixture.problem_at_end() == sound);
    stop.store(true);
    clock.join();
    CHECK(problem_of_replay(with(sync), fixture.observer.events(), 128 * mib) == sound);
}

}  // namespace

TEST_CASE("threads share a pool") {
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", 150) / 50;
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
            stress(sync, seed, 300);
        }
    }
}

TEST_CASE("an allocation that is short of memory waits for another thread's waiting free") {
    Fixture fixture(20 * mib);
    fixture.backend.set_host_wait(SimulatedBackend::HostWait::blocks);
    const BlockInfo all = fixture.get(20 * mib);
    fixture.backend.access(all.id, all.address, all.size);
    std::atomic<bool> waiting{false};
    fixture.backend.set_host_wait_hook([&] { waiting.store(true); });

    std::thread freeing([&] { fixture.pool.free(all.address, 0); });
    while (!waiting.load()) {
        std::this_thread::yield();
    }
    AllocResult result;
    std::thread allocating([&] { result = fixture.pool.allocate(20 * mib, 0); });
    while (fixture.pool.stats().num_sync_all_streams == 0) {
        std::this_thread::yield();
    }
    fixture.backend.advance_all();
    freeing.join();
    allocating.join();
    REQUIRE(result.status.ok());
    CHECK(result.block.address == all.address);
    CHECK(fixture.pool.free(all.address, 0).kind == FreeResult::Kind::freed);
    CHECK(fixture.problem_at_end() == sound);
}

}  // namespace memlab::allocator::testing
