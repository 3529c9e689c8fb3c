// When freed blocks become reusable: fences, host waits, deferral, broken contexts, invalid frees.
// The simulated device reports memory that is used before its fence.
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;
constexpr BackendStatus illegal_address{BackendStatus::Kind::error, 700};

}  // namespace

TEST_CASE("on an idle device a free completes at once, whatever the policy") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        Fixture fixture(gib, with(sync));
        const BlockInfo block = fixture.get(1000, 3);
        REQUIRE(fixture.pool.free(block.address, 4).kind == FreeResult::Kind::freed);
        using What = Seen::What;
        const std::vector<Seen> expected = {
            {What::segment_alloc, block.segment, 2 * mib, 0, 3},
            {What::alloc, block.address, 1024, 1000, 3},
            {What::free_requested, block.address, 1024, 1000, 4},
            {What::free_completed, block.address, 1024, 1000, 0},
        };
        CHECK(fixture.observer.take_events() == expected);
        CHECK(fixture.backend.calls(Call::fence_record) == 1);
        CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
        CHECK(fixture.problem_at_end() == sound);
    }
}

TEST_CASE("automatic: a free of finished work waits for nothing, of unfinished work on the host") {
    Fixture fixture(gib, with(FreeSync::automatic));
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(1000);
    const auto use_a = fixture.backend.access(a.id, a.address, 1000);
    fixture.backend.advance_all();
    fixture.backend.set_knows_idle(false);
    fixture.give(a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);

    const auto use_b = fixture.backend.access(b.id, b.address, 1000);
    CHECK(use_b > use_a);
    fixture.give(b.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.backend.completed() == use_b);
    CHECK(fixture.active() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("automatic: the backend may know that the caller needs no wait of the host") {
    Fixture fixture(gib, with(FreeSync::automatic));
    fixture.backend.set_caller_needs_host_wait([&] {
        CHECK(fixture.allocated() == 0);  // with the lock held, this would never return
        return false;
    });
    const BlockInfo a = fixture.get(2 * mib);
    fixture.backend.access(a.id, a.address, 1000);
    fixture.give(a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
    CHECK(fixture.active() == 2 * mib);
    CHECK(fixture.get(2 * mib).address != a.address);
    fixture.backend.advance_all();
    CHECK(fixture.get(2 * mib).address == a.address);
    CHECK(fixture.problem() == sound);

    SECTION("and is not asked where the answer changes nothing") {
        fixture.backend.set_caller_needs_host_wait([] {
            FAIL("asked");
            return true;
        });
        fixture.give(a.address);
        CHECK(fixture.active() == 2 * mib);
    }
    SECTION("a free that must wait does") {
        fixture.backend.set_caller_needs_host_wait([] { return true; });
        fixture.backend.submit();
        fixture.give(a.address);
        CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    }
    SECTION("everything may be abandoned while it is asked") {
        fixture.backend.set_caller_needs_host_wait([&] {
            fixture.pool.abandon();
            fixture.observer.forget();
            return true;
        });
        fixture.backend.submit();
        fixture.give(a.address);
        CHECK(fixture.reserved() == 0);
    }
    CHECK(fixture.problem() == sound);
}

TEST_CASE("only always and never: nobody is asked what the caller needs") {
    for (const FreeSync sync : {FreeSync::always, FreeSync::never}) {
        Fixture fixture(gib, with(sync));
        fixture.backend.set_caller_needs_host_wait([] {
            FAIL("asked");
            return true;
        });
        const BlockInfo a = fixture.get(1000);
        fixture.backend.access(a.id, a.address, 1000);
        fixture.give(a.address);
        CHECK(fixture.problem_at_end() == sound);
    }
}

TEST_CASE("settling makes the block of a fence that is still pending reusable, in any order") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(1000);
    const BlockInfo c = fixture.get(1000);
    fixture.backend.submit();
    fixture.give(a.address);
    fixture.give(b.address);
    fixture.give(c.address, FenceTiming::deferred);
    CHECK_FALSE(fixture.pool.retire(a.address + 512));
    CHECK_FALSE(fixture.pool.retire(0));
    CHECK(fixture.pool.retire(c.address));
    CHECK(fixture.pool.retire(b.address));
    CHECK_FALSE(fixture.pool.retire(b.address));
    CHECK(fixture.active() == 1024);
    CHECK(fixture.backend.fences() == 1);
    CHECK(fixture.get(1500).address == b.address);
    CHECK_FALSE(fixture.pool.retire(b.address));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("always: a free waits even for a fence that is complete") {
    Fixture fixture(gib, with(FreeSync::always));
    fixture.backend.set_knows_idle(false);
    const BlockInfo a = fixture.get(1000);
    fixture.give(a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a free that waits returns the device's pending error and completes anyway") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always}) {
        Fixture fixture(gib, with(sync));
        const BlockInfo a = fixture.get(1000);
        fixture.backend.access(a.id, a.address, 1000);
        // The fence completes, the wait reports an earlier failure.
        fixture.backend.set_host_wait_hook([&] { fixture.backend.advance_all(); });
        fixture.backend.fail(Call::fence_wait_host, 1, illegal_address);
        const FreeResult result = fixture.pool.free(a.address, 0);
        CHECK(result.kind == FreeResult::Kind::freed);
        CHECK(result.status.code == 700);
        CHECK(fixture.active() == 0);
        CHECK(fixture.problem_at_end() == sound);
    }
}

TEST_CASE("a wait that fails leaves the block behind its fence") {
    Fixture fixture(gib, with(FreeSync::automatic));
    const BlockInfo a = fixture.get(2 * mib);
    fixture.backend.access(a.id, a.address, 1000);
    fixture.backend.fail(Call::fence_wait_host, 1, illegal_address);
    CHECK(fixture.pool.free(a.address, 0).status.code == 700);
    CHECK(fixture.allocated() == 0);
    CHECK(fixture.active() == 2 * mib);
    CHECK(fixture.get(2 * mib).address != a.address);
    fixture.backend.advance_all();
    CHECK(fixture.get(2 * mib).address == a.address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("never: a free does not stop the host, and the block waits behind its fence") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo a = fixture.get(2 * mib);
    const auto use = fixture.backend.access(a.id, a.address, 1000);
    fixture.give(a.address);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
    CHECK(fixture.allocated() == 0);
    CHECK(fixture.active() == 2 * mib);
    CHECK(fixture.pool.stats().requested_bytes.all.current == 2 * mib);
    CHECK_FALSE(fixture.pool.find(a.address).has_value());
    CHECK(fixture.pool.owns(a.address));
    CHECK(fixture.problem() == sound);

    const BlockInfo b = fixture.get(2 * mib);
    CHECK(b.address != a.address);
    fixture.backend.access(b.id, b.address, 1000);

    fixture.backend.advance_to(use);
    const BlockInfo c = fixture.get(2 * mib);
    CHECK(c.address == a.address);
    fixture.backend.access(c.id, c.address, 1000);
    fixture.give(b.address);
    fixture.give(c.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("while all work goes to one stream a free that need not wait completes at once") {
    for (const FreeSync sync : {FreeSync::never, FreeSync::automatic}) {
        Fixture fixture(gib, with(sync));
        fixture.backend.set_one_stream(true);
        fixture.backend.set_caller_needs_host_wait([] { return false; });
        const BlockInfo a = fixture.get(2 * mib);
        const BlockInfo b = fixture.get(2 * mib);
        fixture.backend.access(a.id, a.address, a.size);
        fixture.give(a.address);
        CHECK(fixture.active() == 2 * mib);
        const BlockInfo c = fixture.get(2 * mib);
        CHECK(c.address == a.address);
        fixture.backend.access(c.id, c.address, c.size);  // a problem, were it not ordered
        CHECK(fixture.backend.queries() == 0);
        CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);

        // From the second stream on frees wait for their fences again.
        fixture.backend.set_one_stream(false);
        fixture.backend.access(b.id, b.address, b.size);
        fixture.give(b.address);
        CHECK(fixture.active() == 4 * mib);
        CHECK(fixture.get(2 * mib).address != b.address);
        CHECK(fixture.problem() == sound);
    }
}

TEST_CASE("a caller that is known to go on is not asked; what was freed before comes first") {
    for (const bool surely : {false, true}) {
        Fixture fixture(gib, with(FreeSync::automatic));
        fixture.backend.set_one_stream(true);
        fixture.backend.set_caller_never_waits(surely);
        int asked = 0;
        fixture.backend.set_caller_needs_host_wait([&] {
            ++asked;
            return false;
        });
        const BlockInfo a = fixture.get(2 * mib);
        const BlockInfo b = fixture.get(2 * mib);
        fixture.backend.access(a.id, a.address, a.size);
        fixture.give(a.address);
        CHECK(asked == (surely ? 0 : 1));
        CHECK(fixture.backend.fences() == 0);
        const BlockInfo again = fixture.get(2 * mib);
        CHECK(again.address == a.address);
        fixture.backend.access(again.id, again.address, again.size);

        fixture.backend.set_one_stream(false);
        fixture.backend.access(b.id, b.address, b.size);
        fixture.give(b.address);
        CHECK(fixture.backend.fences() == 1);
        fixture.backend.set_one_stream(true);
        fixture.observer.take_events();
        fixture.give(again.address);
        CHECK(asked == (surely ? 2 : 3));  // it is not sure to be the only one
        using What = Seen::What;
        const std::vector<Seen> expected = {{What::free_requested, a.address, a.size, a.size, 0},
                                            {What::free_completed, b.address, b.size, b.size, 0},
                                            {What::free_completed, a.address, a.size, a.size, 0}};
        CHECK(fixture.observer.take_events() == expected);
        CHECK(fixture.active() == 0);
        CHECK(fixture.problem_at_end() == sound);
    }
}

TEST_CASE("all work on one stream is no reason not to wait for a free that promises it") {
    for (const FreeSync sync : {FreeSync::always, FreeSync::automatic}) {
        Fixture fixture(gib, with(sync));
        fixture.backend.set_one_stream(true);
        const BlockInfo a = fixture.get(2 * mib);
        const auto use = fixture.backend.access(a.id, a.address, a.size);
        fixture.give(a.address);
        CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
        CHECK(fixture.backend.completed() == use);
        CHECK(fixture.problem_at_end() == sound);
    }
}

TEST_CASE("on one stream what was freed before is as safe as what was freed last") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo a = fixture.get(2 * mib);
    const BlockInfo b = fixture.get(2 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    fixture.give(a.address);
    CHECK(fixture.active() == 4 * mib);
    fixture.backend.set_one_stream(true);
    fixture.give(b.address);
    CHECK(fixture.active() == 0);
    CHECK(fixture.backend.fences() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("abandoning while the caller is looked at leaves the free alone on one stream, too") {
    Fixture fixture(gib, with(FreeSync::automatic));
    fixture.backend.set_one_stream(true);
    fixture.backend.set_caller_needs_host_wait([&] {
        fixture.pool.abandon();
        return false;
    });
    const BlockInfo a = fixture.get(2 * mib);
    fixture.backend.access(a.id, a.address, a.size);
    CHECK(fixture.pool.free(a.address, 0).status.ok());
    CHECK(fixture.active() == 0);
    CHECK(fixture.pool.validate().empty());
}

TEST_CASE("a free may leave the host running whatever the policy") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        Fixture fixture(gib, with(sync));
        const BlockInfo a = fixture.get(2 * mib);
        fixture.backend.access(a.id, a.address, 1000);
        fixture.give(a.address, FenceTiming::now_without_wait);
        CHECK(fixture.backend.calls(Call::fence_record) == 1);
        CHECK(fixture.backend.calls(Call::fence_wait_host) == 0);
        CHECK(fixture.active() == 2 * mib);
        CHECK(fixture.get(2 * mib).address != a.address);
        fixture.backend.advance_all();
        CHECK(fixture.get(2 * mib).address == a.address);
        CHECK(fixture.problem() == sound);
    }
}

TEST_CASE("pending frees complete oldest first, and the look stops at the first that is pending") {
    Fixture fixture(gib, with(FreeSync::never));
    std::vector<BlockInfo> blocks;
    std::vector<SimulatedBackend::Position> uses;
    blocks.reserve(4);
    for (int i = 0; i < 4; ++i) {
        blocks.push_back(fixture.get(2 * mib));
    }
    for (const BlockInfo& block : blocks) {
        uses.push_back(fixture.backend.access(block.id, block.address, 1000));
        fixture.give(block.address);
    }
    fixture.backend.advance_to(uses[1]);
    fixture.observer.take_events();
    const auto queries = fixture.backend.queries();
    const BlockInfo next = fixture.get(4 * mib);  // the first two, merged
    CHECK(fixture.backend.queries() == queries + 3);
    CHECK(next.address == blocks[0].address);
    const std::vector<Seen::What> expected = {Seen::What::free_completed,
                                              Seen::What::free_completed, Seen::What::alloc};
    CHECK(fixture.observer.take_kinds() == expected);
    CHECK(fixture.active() == 8 * mib);
    CHECK(fixture.problem() == sound);
}

TEST_CASE(
    "a small allocation asks little: now and then while one can be cut, from the newest back") {
    Fixture fixture(gib, with(FreeSync::never));
    // All of a small segment, each block freed behind work of its own.
    constexpr std::size_t count = 2048;
    std::vector<BlockInfo> blocks;
    std::vector<SimulatedBackend::Position> uses;
    for (std::size_t i = 0; i < count; ++i) {
        blocks.push_back(fixture.get(1000));
    }
    REQUIRE(fixture.backend.segments() == 1);
    for (std::size_t i = 0; i < 40; ++i) {
        uses.push_back(fixture.backend.access(blocks[i].id, blocks[i].address, 1000));
        fixture.give(blocks[i].address);
    }
    SECTION("two questions tell that all but the last is complete") {
        fixture.backend.advance_to(uses[38]);
        const auto queries = fixture.backend.queries();
        fixture.get(1000);
        CHECK(fixture.backend.queries() == queries + 2);
        CHECK(fixture.active() == (count - 39 + 1) * 1024);
        SECTION("and while one of these can be cut, one allocation in eight asks") {
            const auto before = fixture.backend.queries();
            fixture.backend.advance_all();
            for (int i = 0; i < 7; ++i) {
                fixture.get(512);
                CHECK(fixture.backend.queries() == before);
            }
            fixture.get(512);
            CHECK(fixture.backend.queries() == before + 1);
        }
    }
    SECTION("nothing is complete: all are asked about before the pool grows") {
        fixture.get(1000);
        CHECK(fixture.backend.segments() == 2);
    }
    SECTION("only the oldest is complete: it is found before the pool grows") {
        fixture.backend.advance_to(uses[0]);
        CHECK(fixture.get(1000).address == blocks[0].address);
        CHECK(fixture.backend.segments() == 1);
    }
    CHECK(fixture.problem() == sound);
}

TEST_CASE("frees between two submissions share a fence and are each released once") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(1000);
    fixture.backend.submit();
    fixture.give(a.address);
    fixture.give(b.address);
    CHECK(fixture.backend.fences() == 2);
    fixture.backend.advance_all();
    const auto queries = fixture.backend.queries();
    CHECK(fixture.pool.release_cached(false) == 2 * mib);
    CHECK(fixture.backend.queries() == queries + 1);
    CHECK(fixture.backend.fences() == 0);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("release_cached waits only when asked to") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo a = fixture.get(30 * mib);
    fixture.backend.access(a.id, a.address, 1000);
    fixture.give(a.address);
    CHECK(fixture.pool.release_cached(false) == 0);
    CHECK(fixture.backend.completed() == 0);
    CHECK(fixture.pool.release_cached(true) == 30 * mib);
    CHECK(fixture.backend.completed() == 1);
    CHECK(fixture.pool.stats().num_sync_all_streams == 1);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("waiting for all pending frees waits once, for the newest") {
    Fixture fixture(gib, with(FreeSync::never));
    for (int i = 0; i < 5; ++i) {
        const BlockInfo block = fixture.get(30 * mib);
        fixture.backend.access(block.id, block.address, 1000);
        fixture.give(block.address);
    }
    CHECK(fixture.pool.release_cached(true) == 150 * mib);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("waiting for all pending frees does not wait for those that come meanwhile") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo first = fixture.get(30 * mib);
    std::vector<BlockInfo> later;
    later.reserve(3);
    for (int i = 0; i < 3; ++i) {
        later.push_back(fixture.get(30 * mib));
    }
    fixture.backend.submit();
    fixture.give(first.address);
    fixture.backend.set_host_wait_hook([&] {
        if (!later.empty()) {
            fixture.backend.submit();
            fixture.give(later.back().address);
            later.pop_back();
        }
    });
    CHECK(fixture.pool.release_cached(true) == 30 * mib);
    CHECK(fixture.backend.calls(Call::fence_wait_host) == 1);
    CHECK(fixture.active() == bytes_of(90 * mib));
    CHECK(fixture.problem() == sound);
}

TEST_CASE("deferred frees get their fence later, and only then can complete") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        Fixture fixture(gib, with(sync));
        const BlockInfo a = fixture.get(30 * mib);
        const BlockInfo b = fixture.get(1000);
        fixture.give(a.address, FenceTiming::deferred);
        fixture.give(b.address, FenceTiming::deferred);
        CHECK(fixture.backend.calls(Call::fence_record) == 0);
        CHECK(fixture.allocated() == 0);
        CHECK(fixture.active() == bytes_of(30 * mib) + 1024);
        CHECK(fixture.pool.free(a.address, 0).kind == FreeResult::Kind::invalid);
        CHECK(fixture.pool.release_cached(false) == 0);
        CHECK(fixture.problem() == sound);

        const auto use = fixture.backend.access(a.id, a.address, 1000);
        fixture.pool.fence_deferred();
        CHECK(fixture.active() == bytes_of(30 * mib) + 1024);
        CHECK(fixture.get(30 * mib).address != a.address);
        fixture.backend.advance_to(use);
        CHECK(fixture.get(30 * mib).address == a.address);
        CHECK(fixture.problem() == sound);
    }
}

TEST_CASE("release_cached waits for frees that can have no fence, for those before it") {
    Fixture fixture;
    const BlockInfo a = fixture.get(30 * mib);
    const BlockInfo b = fixture.get(40 * mib);
    const auto use = fixture.backend.access(a.id, a.address, 1000);
    fixture.give(a.address, FenceTiming::deferred);
    bool waiting = false;
    fixture.backend.set_host_wait_hook([&] {
        if (!std::exchange(waiting, true)) {
            fixture.give(b.address, FenceTiming::deferred);
        }
    });
    CHECK(fixture.pool.release_cached(true) == 30 * mib);
    CHECK(waiting);
    CHECK(fixture.backend.completed() >= use);
    CHECK(fixture.active() == bytes_of(40 * mib));
    CHECK(fixture.pool.release_cached(true) == 40 * mib);
    CHECK(fixture.problem_at_end() == sound);

    const BlockInfo c = fixture.get(30 * mib);
    fixture.backend.access(c.id, c.address, 1000);
    fixture.give(c.address, FenceTiming::deferred);
    fixture.backend.break_context(700);
    CHECK(fixture.pool.release_cached(true) == 0);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("deferred frees complete at once when nothing is running") {
    Fixture fixture;
    const BlockInfo a = fixture.get(30 * mib);
    fixture.give(a.address, FenceTiming::deferred);
    fixture.pool.fence_deferred();
    CHECK(fixture.active() == 0);
    CHECK(fixture.pool.release_cached(false) == 30 * mib);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("a free whose fence cannot be recorded yet says so and waits for the next chance") {
    Fixture fixture;
    const BlockInfo a = fixture.get(1000);
    fixture.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::not_now, 900});
    const FreeResult result = fixture.pool.free(a.address, 0);
    CHECK(result.kind == FreeResult::Kind::freed);
    CHECK(result.status.code == 900);
    CHECK(fixture.allocated() == 0);
    CHECK(fixture.get(1000).address != a.address);

    fixture.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::not_now, 900});
    fixture.pool.fence_deferred();
    CHECK(fixture.get(1000).address != a.address);
    fixture.pool.fence_deferred();
    CHECK(fixture.get(1000).address == a.address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("a free whose fence is refused leaves the block allocated") {
    Fixture fixture;
    const BlockInfo a = fixture.get(1000);
    fixture.observer.take_events();
    for (const bool in_a_stream : {false, true}) {
        fixture.backend.fail(Call::fence_record, 1, {BackendStatus::Kind::error, 800});
        const FreeResult result =
            in_a_stream ? fixture.pool.free_in(7, a.address, 0) : fixture.pool.free(a.address, 0);
        CHECK(result.kind == FreeResult::Kind::refused);
        CHECK(result.status.code == 800);
    }
    CHECK(fixture.observer.take_events().empty());
    CHECK(fixture.allocated() == 1024);
    CHECK(fixture.pool.find(a.address));
    fixture.give(a.address);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("in a broken context a free reports the error and its block is never used again") {
    for (const FreeSync sync : {FreeSync::automatic, FreeSync::always, FreeSync::never}) {
        Fixture fixture(gib, with(sync));
        const BlockInfo before = fixture.get(1000);
        const BlockInfo block = fixture.get(1000);
        fixture.backend.access(block.id, block.address, 1000);
        Fence ours = 0;  // as if recorded just before the fault
        REQUIRE(fixture.backend.fence_record(&ours).ok());
        fixture.backend.set_host_wait_hook([&] { fixture.backend.break_context(700); });
        if (sync == FreeSync::never) {
            fixture.give(block.address);
            fixture.backend.break_context(700);
            fixture.pool.release_cached(false);  // polls, and so detects it
            CHECK(fixture.get(1000).address != block.address);
        } else {
            CHECK(fixture.pool.free(block.address, 0).status.code == 700);
        }
        CHECK(fixture.backend.fences() == 1);  // only ours
        fixture.backend.fence_release(ours);
        CHECK(fixture.allocated() > 0);
        CHECK(fixture.active() > fixture.allocated());
        CHECK(fixture.pool.free(block.address, 0).kind == FreeResult::Kind::invalid);
        CHECK(fixture.pool.free(before.address, 0).status.code == 700);
        CHECK(fixture.get(1000).address != block.address);
        CHECK(fixture.pool.release_cached(true) == 0);
        CHECK(fixture.problem() == sound);
    }
}

TEST_CASE("a fence that has failed by the time of the free is reported at once, but by never") {
    // Recording still works, the query already fails.
    class Failing final : public SimulatedBackend {
      public:
        using SimulatedBackend::SimulatedBackend;
        FenceState fence_query(Fence fence) override {
            break_context(700);
            return SimulatedBackend::fence_query(fence);
        }
    };
    Failing backend(gib);
    const bool waits = GENERATE(true, false);
    Pool pool(with(waits ? FreeSync::automatic : FreeSync::never), backend, nullptr);
    const AllocResult block = pool.allocate(1000, 0);
    REQUIRE(block.status.ok());
    backend.submit();
    CHECK(pool.free(block.block.address, 0).status.code == (waits ? 700 : 0));
    CHECK(pool.stats().active.all.current == 1);
    CHECK(pool.allocate(2 * mib, 0).block.address != block.block.address);
    CHECK(backend.fences() == 0);
    CHECK(pool.validate() == sound);
    CHECK(backend.problems().empty());
}

TEST_CASE("frees of what is not ours or not live change nothing") {
    Fixture fixture;
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(5000);
    fixture.give(b.address);
    fixture.observer.take_events();
    using Kind = FreeResult::Kind;
    CHECK(fixture.pool.free(0, 0).kind == Kind::not_ours);
    CHECK(fixture.pool.free(0x1234, 0).kind == Kind::not_ours);
    CHECK(fixture.pool.free(a.segment - 1, 0).kind == Kind::not_ours);
    CHECK(fixture.pool.free(a.segment + 2 * mib, 0).kind == Kind::not_ours);
    CHECK(fixture.pool.free(a.address + 512, 0).kind == Kind::invalid);
    CHECK(fixture.pool.free(b.address, 0).kind == Kind::invalid);
    CHECK(fixture.pool.free(a.segment + 2 * mib - 1, 0).kind == Kind::invalid);
    CHECK(fixture.observer.take_events().empty());
    CHECK(fixture.backend.calls(Call::fence_record) == 1);
    fixture.give(a.address);
    CHECK(fixture.pool.free(a.address, 0).kind == Kind::invalid);
    CHECK(fixture.problem_at_end() == sound);
}

TEST_CASE("while a free waits for the device the pool can be used") {
    Fixture fixture(gib, with(FreeSync::automatic));
    const BlockInfo a = fixture.get(1000);
    const BlockInfo b = fixture.get(1000);
    fixture.backend.access(a.id, a.address, 1000);
    bool used = false;
    fixture.backend.set_host_wait_hook([&] {
        if (std::exchange(used, true)) {
            return;
        }
        // As another thread would: with the lock held, this would never return.
        CHECK(fixture.allocated() == 1024);
        CHECK(fixture.pool.free(a.address, 0).kind == FreeResult::Kind::invalid);
        const BlockInfo c = fixture.get(1000);
        CHECK(c.address != a.address);
        // The fence completes meanwhile: the block is still the waiting thread's to retire.
        fixture.backend.advance_all();
        CHECK(fixture.get(1000).address != a.address);
        fixture.give(b.address);
        CHECK(fixture.pool.validate() == sound);
    });
    fixture.give(a.address);
    CHECK(used);
    fixture.backend.set_host_wait_hook({});
    CHECK(fixture.get(1000).address == a.address);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("abandoning forgets everything and calls no one") {
    Fixture fixture(gib, with(FreeSync::never));
    const BlockInfo live = fixture.get(1000);
    const BlockInfo pending = fixture.get(4'000'000);
    const BlockInfo deferred = fixture.get(30 * mib);
    fixture.backend.access(pending.id, pending.address, 1000);
    fixture.give(pending.address);
    fixture.give(deferred.address, FenceTiming::deferred);
    fixture.observer.take_events();
    const auto frees = fixture.backend.calls(Call::segment_free);
    const auto fences = fixture.backend.fences();

    fixture.pool.abandon();
    CHECK(fixture.observer.take_events().empty());
    CHECK(fixture.backend.calls(Call::segment_free) == frees);
    CHECK(fixture.backend.fences() == fences);
    fixture.observer.forget();
    CHECK(fixture.problem() == sound);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.active() == 0);
    CHECK_FALSE(fixture.pool.owns(live.address));
    CHECK(fixture.pool.free(live.address, 0).kind == FreeResult::Kind::not_ours);
    // And continues with the next calls.
    CHECK(fixture.get(1000).size == 1024);
    CHECK(fixture.problem() == sound);
}

TEST_CASE("abandoning during a wait leaves the waiting free with its answer") {
    Fixture fixture(gib, with(FreeSync::automatic));
    const BlockInfo a = fixture.get(1000);
    fixture.backend.access(a.id, a.address, 1000);
    fixture.backend.set_host_wait_hook([&] {
        fixture.pool.abandon();
        fixture.observer.forget();
    });
    fixture.give(a.address);
    CHECK(fixture.reserved() == 0);
    CHECK(fixture.problem() == sound);
}

}  // namespace memlab::allocator::testing
