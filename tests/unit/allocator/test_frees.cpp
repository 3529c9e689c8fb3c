// How a free becomes reusable: fences, host waits, deferral, broken contexts, wrong frees. The
// simulated device says so when memory is used before its fence.
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/unit/allocator/world.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;
constexpr BackendStatus illegal_address{BackendStatus::Kind::error, 700};

}  // namespace

TEST_CASE("on an idle device a free completes at once, whatever the policy") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        World world(gib, with(sync));
        const BlockInfo block = world.get(1000, 3);
        REQUIRE(world.pool.free(block.address, 4).kind == FreeResult::Kind::freed);
        using What = Seen::What;
        const std::vector<Seen> expected = {
            {What::segment_alloc, block.segment, 2 * mib, 0, 3},
            {What::alloc, block.address, 1024, 1000, 3},
            {What::free_requested, block.address, 1024, 1000, 4},
            {What::free_completed, block.address, 1024, 1000, 0},
        };
        CHECK(world.observer.take_events() == expected);
        CHECK(world.backend.calls(Call::fence_record) == 1);
        CHECK(world.backend.calls(Call::fence_wait_host) == 0);
        CHECK(world.problem_at_end() == sound);
    }
}

TEST_CASE("automatic: a free of finished work waits for nothing, of unfinished work on the host") {
    World world(gib, with(FreeSync::automatic));
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(1000);
    const auto use_a = world.backend.access(a.id, a.address, 1000);
    world.backend.advance_all();
    world.backend.set_knows_idle(false);
    world.give(a.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 0);

    const auto use_b = world.backend.access(b.id, b.address, 1000);
    CHECK(use_b > use_a);
    world.give(b.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    CHECK(world.backend.completed() == use_b);
    CHECK(world.active() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("automatic: the backend may know that the caller needs no wait of the host") {
    World world(gib, with(FreeSync::automatic));
    world.backend.set_caller_needs_host_wait([&] {
        CHECK(world.allocated() == 0);  // with the lock held, this would never return
        return false;
    });
    const BlockInfo a = world.get(2 * mib);
    world.backend.access(a.id, a.address, 1000);
    world.give(a.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 0);
    CHECK(world.active() == 2 * mib);
    CHECK(world.get(2 * mib).address != a.address);
    world.backend.advance_all();
    CHECK(world.get(2 * mib).address == a.address);
    CHECK(world.problem() == sound);

    SECTION("and is not asked where the answer changes nothing") {
        world.backend.set_caller_needs_host_wait([] {
            FAIL("asked");
            return true;
        });
        world.give(a.address);
        CHECK(world.active() == 2 * mib);
    }
    SECTION("a free that must wait does") {
        world.backend.set_caller_needs_host_wait([] { return true; });
        world.backend.submit();
        world.give(a.address);
        CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    }
    SECTION("everything may be abandoned while it is asked") {
        world.backend.set_caller_needs_host_wait([&] {
            world.pool.abandon();
            world.observer.forget();
            return true;
        });
        world.backend.submit();
        world.give(a.address);
        CHECK(world.reserved() == 0);
    }
    CHECK(world.problem() == sound);
}

TEST_CASE("only always and never: nobody is asked what the caller needs") {
    for (const FreeSync sync : {FreeSync::always, FreeSync::never}) {
        World world(gib, with(sync));
        world.backend.set_caller_needs_host_wait([] {
            FAIL("asked");
            return true;
        });
        const BlockInfo a = world.get(1000);
        world.backend.access(a.id, a.address, 1000);
        world.give(a.address);
        CHECK(world.problem_at_end() == sound);
    }
}

TEST_CASE("settling makes the block of a fence that is still pending reusable, in any order") {
    World world(gib, with(FreeSync::never));
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(1000);
    const BlockInfo c = world.get(1000);
    world.backend.submit();
    world.give(a.address);
    world.give(b.address);
    world.give(c.address, FenceTiming::deferred);
    CHECK_FALSE(world.pool.settle(a.address + 512));
    CHECK_FALSE(world.pool.settle(0));
    CHECK(world.pool.settle(c.address));
    CHECK(world.pool.settle(b.address));
    CHECK_FALSE(world.pool.settle(b.address));
    CHECK(world.active() == 1024);
    CHECK(world.backend.fences() == 1);
    CHECK(world.get(1500).address == b.address);
    CHECK_FALSE(world.pool.settle(b.address));
    CHECK(world.problem() == sound);
}

TEST_CASE("always: a free waits even for a fence that is complete") {
    World world(gib, with(FreeSync::always));
    world.backend.set_knows_idle(false);
    const BlockInfo a = world.get(1000);
    world.give(a.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("a free that waits returns the device's pending error and completes all the same") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always}) {
        World world(gib, with(sync));
        const BlockInfo a = world.get(1000);
        world.backend.access(a.id, a.address, 1000);
        // The fence completes, the wait reports an earlier failure.
        world.backend.set_host_wait_hook([&] { world.backend.advance_all(); });
        world.backend.fail(Call::fence_wait_host, 1, illegal_address);
        const FreeResult result = world.pool.free(a.address, 0);
        CHECK(result.kind == FreeResult::Kind::freed);
        CHECK(result.status.code == 700);
        CHECK(world.active() == 0);
        CHECK(world.problem_at_end() == sound);
    }
}

TEST_CASE("a wait that fails leaves the block behind its fence") {
    World world(gib, with(FreeSync::automatic));
    const BlockInfo a = world.get(2 * mib);
    world.backend.access(a.id, a.address, 1000);
    world.backend.fail(Call::fence_wait_host, 1, illegal_address);
    CHECK(world.pool.free(a.address, 0).status.code == 700);
    CHECK(world.allocated() == 0);
    CHECK(world.active() == 2 * mib);
    CHECK(world.get(2 * mib).address != a.address);
    world.backend.advance_all();
    CHECK(world.get(2 * mib).address == a.address);
    CHECK(world.problem() == sound);
}

TEST_CASE("never: a free does not stop the host, and the block waits behind its fence") {
    World world(gib, with(FreeSync::never));
    const BlockInfo a = world.get(2 * mib);
    const auto use = world.backend.access(a.id, a.address, 1000);
    world.give(a.address);
    CHECK(world.backend.calls(Call::fence_wait_host) == 0);
    CHECK(world.allocated() == 0);
    CHECK(world.active() == 2 * mib);
    CHECK(world.pool.stats().requested_bytes.all.current == 2 * mib);
    CHECK_FALSE(world.pool.find(a.address).has_value());
    CHECK(world.pool.owns(a.address));
    CHECK(world.problem() == sound);

    const BlockInfo b = world.get(2 * mib);
    CHECK(b.address != a.address);
    world.backend.access(b.id, b.address, 1000);

    world.backend.advance_to(use);
    const BlockInfo c = world.get(2 * mib);
    CHECK(c.address == a.address);
    world.backend.access(c.id, c.address, 1000);
    world.give(b.address);
    world.give(c.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("while all work goes to one stream a free that need not wait completes at once") {
    for (const FreeSync sync : {FreeSync::never, FreeSync::automatic}) {
        World world(gib, with(sync));
        world.backend.set_one_stream(true);
        world.backend.set_caller_needs_host_wait([] { return false; });
        const BlockInfo a = world.get(2 * mib);
        const BlockInfo b = world.get(2 * mib);
        world.backend.access(a.id, a.address, a.size);
        world.give(a.address);
        CHECK(world.active() == 2 * mib);
        const BlockInfo c = world.get(2 * mib);
        CHECK(c.address == a.address);
        world.backend.access(c.id, c.address, c.size);  // a problem, were it not ordered
        CHECK(world.backend.queries() == 0);
        CHECK(world.backend.calls(Call::fence_wait_host) == 0);

        // From the second stream on frees wait for their fences again.
        world.backend.set_one_stream(false);
        world.backend.access(b.id, b.address, b.size);
        world.give(b.address);
        CHECK(world.active() == 4 * mib);
        CHECK(world.get(2 * mib).address != b.address);
        CHECK(world.problem() == sound);
    }
}

TEST_CASE("a caller that is known to go on is not asked; what was freed before comes first") {
    for (const bool surely : {false, true}) {
        World world(gib, with(FreeSync::automatic));
        world.backend.set_one_stream(true);
        world.backend.set_caller_surely_goes_on(surely);
        int asked = 0;
        world.backend.set_caller_needs_host_wait([&] {
            ++asked;
            return false;
        });
        const BlockInfo a = world.get(2 * mib);
        const BlockInfo b = world.get(2 * mib);
        world.backend.access(a.id, a.address, a.size);
        world.give(a.address);
        CHECK(asked == (surely ? 0 : 1));
        CHECK(world.backend.fences() == 0);
        const BlockInfo again = world.get(2 * mib);
        CHECK(again.address == a.address);
        world.backend.access(again.id, again.address, again.size);

        world.backend.set_one_stream(false);
        world.backend.access(b.id, b.address, b.size);
        world.give(b.address);
        CHECK(world.backend.fences() == 1);
        world.backend.set_one_stream(true);
        world.observer.take_events();
        world.give(again.address);
        CHECK(asked == (surely ? 2 : 3));  // it is not sure to be the only one
        using What = Seen::What;
        const std::vector<Seen> expected = {{What::free_requested, a.address, a.size, a.size, 0},
                                            {What::free_completed, b.address, b.size, b.size, 0},
                                            {What::free_completed, a.address, a.size, a.size, 0}};
        CHECK(world.observer.take_events() == expected);
        CHECK(world.active() == 0);
        CHECK(world.problem_at_end() == sound);
    }
}

TEST_CASE("all work on one stream is no reason not to wait for a free that promises it") {
    for (const FreeSync sync : {FreeSync::always, FreeSync::automatic}) {
        World world(gib, with(sync));
        world.backend.set_one_stream(true);
        const BlockInfo a = world.get(2 * mib);
        const auto use = world.backend.access(a.id, a.address, a.size);
        world.give(a.address);
        CHECK(world.backend.calls(Call::fence_wait_host) == 1);
        CHECK(world.backend.completed() == use);
        CHECK(world.problem_at_end() == sound);
    }
}

TEST_CASE("on one stream what was freed before is as safe as what was freed last") {
    World world(gib, with(FreeSync::never));
    const BlockInfo a = world.get(2 * mib);
    const BlockInfo b = world.get(2 * mib);
    world.backend.access(a.id, a.address, a.size);
    world.give(a.address);
    CHECK(world.active() == 4 * mib);
    world.backend.set_one_stream(true);
    world.give(b.address);
    CHECK(world.active() == 0);
    CHECK(world.backend.fences() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("abandoning while the caller is looked at leaves the free alone on one stream, too") {
    World world(gib, with(FreeSync::automatic));
    world.backend.set_one_stream(true);
    world.backend.set_caller_needs_host_wait([&] {
        world.pool.abandon();
        return false;
    });
    const BlockInfo a = world.get(2 * mib);
    world.backend.access(a.id, a.address, a.size);
    CHECK(world.pool.free(a.address, 0).status.ok());
    CHECK(world.active() == 0);
    CHECK(world.pool.validate().empty());
}

TEST_CASE("a free may leave the host running whatever the policy") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        World world(gib, with(sync));
        const BlockInfo a = world.get(2 * mib);
        world.backend.access(a.id, a.address, 1000);
        world.give(a.address, FenceTiming::now_host_goes_on);
        CHECK(world.backend.calls(Call::fence_record) == 1);
        CHECK(world.backend.calls(Call::fence_wait_host) == 0);
        CHECK(world.active() == 2 * mib);
        CHECK(world.get(2 * mib).address != a.address);
        world.backend.advance_all();
        CHECK(world.get(2 * mib).address == a.address);
        CHECK(world.problem() == sound);
    }
}

TEST_CASE("pending frees complete oldest first, and the look stops at the first that is pending") {
    World world(gib, with(FreeSync::never));
    std::vector<BlockInfo> blocks;
    std::vector<SimulatedBackend::Position> uses;
    blocks.reserve(4);
    for (int i = 0; i < 4; ++i) {
        blocks.push_back(world.get(2 * mib));
    }
    for (const BlockInfo& block : blocks) {
        uses.push_back(world.backend.access(block.id, block.address, 1000));
        world.give(block.address);
    }
    world.backend.advance_to(uses[1]);
    world.observer.take_events();
    const auto queries = world.backend.queries();
    const BlockInfo next = world.get(4 * mib);  // the first two, merged
    CHECK(world.backend.queries() == queries + 3);
    CHECK(next.address == blocks[0].address);
    const std::vector<Seen::What> expected = {Seen::What::free_completed,
                                              Seen::What::free_completed, Seen::What::alloc};
    CHECK(world.observer.take_kinds() == expected);
    CHECK(world.active() == 8 * mib);
    CHECK(world.problem() == sound);
}

TEST_CASE(
    "a small allocation asks little: now and then while one can be cut, from the newest back") {
    World world(gib, with(FreeSync::never));
    // All of a small segment, each block freed behind work of its own.
    constexpr std::size_t count = 2048;
    std::vector<BlockInfo> blocks;
    std::vector<SimulatedBackend::Position> uses;
    for (std::size_t i = 0; i < count; ++i) {
        blocks.push_back(world.get(1000));
    }
    REQUIRE(world.backend.segments() == 1);
    for (std::size_t i = 0; i < 40; ++i) {
        uses.push_back(world.backend.access(blocks[i].id, blocks[i].address, 1000));
        world.give(blocks[i].address);
    }
    SECTION("two questions tell that all but the last is complete") {
        world.backend.advance_to(uses[38]);
        const auto queries = world.backend.queries();
        world.get(1000);
        CHECK(world.backend.queries() == queries + 2);
        CHECK(world.active() == (count - 39 + 1) * 1024);
        SECTION("and while one of these can be cut, one allocation in eight asks") {
            const auto before = world.backend.queries();
            world.backend.advance_all();
            for (int i = 0; i < 7; ++i) {
                world.get(512);
                CHECK(world.backend.queries() == before);
            }
            world.get(512);
            CHECK(world.backend.queries() == before + 1);
        }
    }
    SECTION("nothing is complete: all are asked about before the pool grows") {
        world.get(1000);
        CHECK(world.backend.segments() == 2);
    }
    SECTION("only the oldest is complete: it is found before the pool grows") {
        world.backend.advance_to(uses[0]);
        CHECK(world.get(1000).address == blocks[0].address);
        CHECK(world.backend.segments() == 1);
    }
    CHECK(world.problem() == sound);
}

TEST_CASE("frees between two submissions share a fence and are each released once") {
    World world(gib, with(FreeSync::never));
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(1000);
    world.backend.submit();
    world.give(a.address);
    world.give(b.address);
    CHECK(world.backend.fences() == 2);
    world.backend.advance_all();
    const auto queries = world.backend.queries();
    CHECK(world.pool.release_cached(false) == 2 * mib);
    CHECK(world.backend.queries() == queries + 1);
    CHECK(world.backend.fences() == 0);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("release_cached waits only when asked to") {
    World world(gib, with(FreeSync::never));
    const BlockInfo a = world.get(30 * mib);
    world.backend.access(a.id, a.address, 1000);
    world.give(a.address);
    CHECK(world.pool.release_cached(false) == 0);
    CHECK(world.backend.completed() == 0);
    CHECK(world.pool.release_cached(true) == 30 * mib);
    CHECK(world.backend.completed() == 1);
    CHECK(world.pool.stats().num_sync_all_streams == 1);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("waiting for all pending frees waits once, for the newest") {
    World world(gib, with(FreeSync::never));
    for (int i = 0; i < 5; ++i) {
        const BlockInfo block = world.get(30 * mib);
        world.backend.access(block.id, block.address, 1000);
        world.give(block.address);
    }
    CHECK(world.pool.release_cached(true) == 150 * mib);
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("waiting for all pending frees does not wait for those that come meanwhile") {
    World world(gib, with(FreeSync::never));
    const BlockInfo first = world.get(30 * mib);
    std::vector<BlockInfo> later;
    later.reserve(3);
    for (int i = 0; i < 3; ++i) {
        later.push_back(world.get(30 * mib));
    }
    world.backend.submit();
    world.give(first.address);
    world.backend.set_host_wait_hook([&] {
        if (!later.empty()) {
            world.backend.submit();
            world.give(later.back().address);
            later.pop_back();
        }
    });
    CHECK(world.pool.release_cached(true) == 30 * mib);
    CHECK(world.backend.calls(Call::fence_wait_host) == 1);
    CHECK(world.active() == bytes_of(90 * mib));
    CHECK(world.problem() == sound);
}

TEST_CASE("deferred frees get their fence later, and only then can complete") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        World world(gib, with(sync));
        const BlockInfo a = world.get(30 * mib);
        const BlockInfo b = world.get(1000);
        world.give(a.address, FenceTiming::deferred);
        world.give(b.address, FenceTiming::deferred);
        CHECK(world.backend.calls(Call::fence_record) == 0);
        CHECK(world.allocated() == 0);
        CHECK(world.active() == bytes_of(30 * mib) + 1024);
        CHECK(world.pool.free(a.address, 0).kind == FreeResult::Kind::invalid);
        CHECK(world.pool.release_cached(false) == 0);
        CHECK(world.problem() == sound);

        const auto use = world.backend.access(a.id, a.address, 1000);
        world.pool.fence_deferred();
        CHECK(world.active() == bytes_of(30 * mib) + 1024);
        CHECK(world.get(30 * mib).address != a.address);
        world.backend.advance_to(use);
        CHECK(world.get(30 * mib).address == a.address);
        CHECK(world.problem() == sound);
    }
}

TEST_CASE("release_cached waits for frees that can have no fence, for those before it") {
    World world;
    const BlockInfo a = world.get(30 * mib);
    const BlockInfo b = world.get(40 * mib);
    const auto use = world.backend.access(a.id, a.address, 1000);
    world.give(a.address, FenceTiming::deferred);
    bool waiting = false;
    world.backend.set_host_wait_hook([&] {
        if (!std::exchange(waiting, true)) {
            world.give(b.address, FenceTiming::deferred);
        }
    });
    CHECK(world.pool.release_cached(true) == 30 * mib);
    CHECK(waiting);
    CHECK(world.backend.completed() >= use);
    CHECK(world.active() == bytes_of(40 * mib));
    CHECK(world.pool.release_cached(true) == 40 * mib);
    CHECK(world.problem_at_end() == sound);

    const BlockInfo c = world.get(30 * mib);
    world.backend.access(c.id, c.address, 1000);
    world.give(c.address, FenceTiming::deferred);
    world.backend.break_context(700);
    CHECK(world.pool.release_cached(true) == 0);
    CHECK(world.problem() == sound);
}

TEST_CASE("deferred frees complete at once when nothing is running") {
    World world;
    const BlockInfo a = world.get(30 * mib);
    world.give(a.address, FenceTiming::deferred);
    world.pool.fence_deferred();
    CHECK(world.active() == 0);
    CHECK(world.pool.release_cached(false) == 30 * mib);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("a free whose fence cannot be recorded yet says so and waits for the next chance") {
    World world;
    const BlockInfo a = world.get(1000);
    world.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::not_now, 900});
    const FreeResult result = world.pool.free(a.address, 0);
    CHECK(result.kind == FreeResult::Kind::freed);
    CHECK(result.status.code == 900);
    CHECK(world.allocated() == 0);
    CHECK(world.get(1000).address != a.address);

    world.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::not_now, 900});
    world.pool.fence_deferred();
    CHECK(world.get(1000).address != a.address);
    world.pool.fence_deferred();
    CHECK(world.get(1000).address == a.address);
    CHECK(world.problem() == sound);
}

TEST_CASE("a free whose fence is refused leaves the block allocated") {
    World world;
    const BlockInfo a = world.get(1000);
    world.observer.take_events();
    for (const bool in_a_stream : {false, true}) {
        world.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::error, 800});
        const FreeResult result =
            in_a_stream ? world.pool.free_in(7, a.address, 0) : world.pool.free(a.address, 0);
        CHECK(result.kind == FreeResult::Kind::refused);
        CHECK(result.status.code == 800);
    }
    CHECK(world.observer.take_events().empty());
    CHECK(world.allocated() == 1024);
    CHECK(world.pool.find(a.address));
    world.give(a.address);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("in a broken context a free reports the error and its block is never used again") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        World world(gib, with(sync));
        const BlockInfo before = world.get(1000);
        const BlockInfo block = world.get(1000);
        world.backend.access(block.id, block.address, 1000);
        Fence ours = 0;  // as if recorded just before the fault
        REQUIRE(world.backend.fence_record(&ours).ok());
        world.backend.set_host_wait_hook([&] { world.backend.break_context(700); });
        if (sync == FreeSync::never) {
            world.give(block.address);
            world.backend.break_context(700);
            world.pool.release_cached(false);  // asks, and so notices
            CHECK(world.get(1000).address != block.address);
        } else {
            CHECK(world.pool.free(block.address, 0).status.code == 700);
        }
        CHECK(world.backend.fences() == 1);  // only ours
        world.backend.fence_release(ours);
        CHECK(world.allocated() > 0);
        CHECK(world.active() > world.allocated());
        CHECK(world.pool.free(block.address, 0).kind == FreeResult::Kind::invalid);
        CHECK(world.pool.free(before.address, 0).status.code == 700);
        CHECK(world.get(1000).address != block.address);
        CHECK(world.pool.release_cached(true) == 0);
        CHECK(world.problem() == sound);
    }
}

TEST_CASE("a fence that has failed by the time of the free is reported at once, but by never") {
    // Recording still works, the query already fails.
    class Failing final : public DeviceBackend {
      public:
        explicit Failing(SimulatedBackend& real) : real_(real) {}
        BackendStatus segment_alloc(std::uint64_t bytes, Address* address) override {
            return real_.segment_alloc(bytes, address);
        }
        BackendStatus segment_free(Address address, std::uint64_t bytes) override {
            return real_.segment_free(address, bytes);
        }
        BackendStatus fence_record(Fence* fence) override { return real_.fence_record(fence); }
        FenceState fence_query(Fence fence) override {
            real_.break_context(700);
            return real_.fence_query(fence);
        }
        BackendStatus fence_wait_device(Fence fence) override {
            return real_.fence_wait_device(fence);
        }
        BackendStatus fence_wait_host(Fence fence) override { return real_.fence_wait_host(fence); }
        void fence_release(Fence fence) override { real_.fence_release(fence); }

      private:
        SimulatedBackend& real_;
    };
    SimulatedBackend device(gib);
    Failing backend(device);
    const bool waits = GENERATE(true, false);
    Pool pool(with(waits ? FreeSync::automatic : FreeSync::never), backend, nullptr);
    const AllocResult block = pool.allocate(1000, 0);
    REQUIRE(block.status.ok());
    device.submit();
    CHECK(pool.free(block.block.address, 0).status.code == (waits ? 700 : 0));
    CHECK(pool.stats().active.all.current == 1);
    CHECK(pool.allocate(2 * mib, 0).block.address != block.block.address);
    CHECK(device.fences() == 0);
    CHECK(pool.validate() == sound);
    CHECK(device.problems().empty());
}

TEST_CASE("frees of what is not ours or not live change nothing") {
    World world;
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(5000);
    world.give(b.address);
    world.observer.take_events();
    using Kind = FreeResult::Kind;
    CHECK(world.pool.free(0, 0).kind == Kind::not_ours);
    CHECK(world.pool.free(0x1234, 0).kind == Kind::not_ours);
    CHECK(world.pool.free(a.segment - 1, 0).kind == Kind::not_ours);
    CHECK(world.pool.free(a.segment + 2 * mib, 0).kind == Kind::not_ours);
    CHECK(world.pool.free(a.address + 512, 0).kind == Kind::invalid);
    CHECK(world.pool.free(b.address, 0).kind == Kind::invalid);
    CHECK(world.pool.free(a.segment + 2 * mib - 1, 0).kind == Kind::invalid);
    CHECK(world.observer.take_events().empty());
    CHECK(world.backend.calls(Call::fence_record) == 1);
    world.give(a.address);
    CHECK(world.pool.free(a.address, 0).kind == Kind::invalid);
    CHECK(world.problem_at_end() == sound);
}

TEST_CASE("while a free waits for the device the pool can be used") {
    World world(gib, with(FreeSync::automatic));
    const BlockInfo a = world.get(1000);
    const BlockInfo b = world.get(1000);
    world.backend.access(a.id, a.address, 1000);
    bool used = false;
    world.backend.set_host_wait_hook([&] {
        if (std::exchange(used, true)) {
            return;
        }
        // As another thread would: with the lock held, this would never return.
        CHECK(world.allocated() == 1024);
        CHECK(world.pool.free(a.address, 0).kind == FreeResult::Kind::invalid);
        const BlockInfo c = world.get(1000);
        CHECK(c.address != a.address);
        // The fence completes meanwhile: the block is still the waiting thread's to settle.
        world.backend.advance_all();
        CHECK(world.get(1000).address != a.address);
        world.give(b.address);
        CHECK(world.pool.validate() == sound);
    });
    world.give(a.address);
    CHECK(used);
    world.backend.set_host_wait_hook({});
    CHECK(world.get(1000).address == a.address);
    CHECK(world.problem() == sound);
}

TEST_CASE("abandoning forgets everything and calls no one") {
    World world(gib, with(FreeSync::never));
    const BlockInfo live = world.get(1000);
    const BlockInfo pending = world.get(4'000'000);
    const BlockInfo deferred = world.get(30 * mib);
    world.backend.access(pending.id, pending.address, 1000);
    world.give(pending.address);
    world.give(deferred.address, FenceTiming::deferred);
    world.observer.take_events();
    const auto frees = world.backend.calls(Call::segment_free);
    const auto fences = world.backend.fences();

    world.pool.abandon();
    CHECK(world.observer.take_events().empty());
    CHECK(world.backend.calls(Call::segment_free) == frees);
    CHECK(world.backend.fences() == fences);
    world.observer.forget();
    CHECK(world.problem() == sound);
    CHECK(world.reserved() == 0);
    CHECK(world.active() == 0);
    CHECK_FALSE(world.pool.owns(live.address));
    CHECK(world.pool.free(live.address, 0).kind == FreeResult::Kind::not_ours);
    // And goes on with whatever comes next.
    CHECK(world.get(1000).size == 1024);
    CHECK(world.problem() == sound);
}

TEST_CASE("abandoning during a wait leaves the waiting free with its answer") {
    World world(gib, with(FreeSync::automatic));
    const BlockInfo a = world.get(1000);
    world.backend.access(a.id, a.address, 1000);
    world.backend.set_host_wait_hook([&] {
        world.pool.abandon();
        world.observer.forget();
    });
    world.give(a.address);
    CHECK(world.reserved() == 0);
    CHECK(world.problem() == sound);
}

}  // namespace memlab::allocator::testing
