// Tests of the simulated device: it must detect the violations that it is meant to detect.
#include "tests/support/simulated_backend.hpp"

#include <cstdint>

#include "tests/unit/allocator/fixture.hpp"

namespace memlab::allocator::testing {

namespace {

using Call = SimulatedBackend::Call;

Address segment(SimulatedBackend& backend, std::uint64_t bytes) {
    Address address = 0;
    REQUIRE(backend.segment_alloc(bytes, &address).ok());
    return address;
}

Fence fence(SimulatedBackend& backend) {
    Fence result = 0;
    REQUIRE(backend.fence_record(&result).ok());
    return result;
}

}  // namespace

TEST_CASE("memory is given out lowest first and only the sum counts") {
    SimulatedBackend backend(10 * mib, 0x1000000);
    const Address a = segment(backend, 4 * mib);
    const Address b = segment(backend, 2 * mib);
    CHECK(a == 0x1000000);
    CHECK(b == a + 4 * mib);
    CHECK(backend.segment_free(a, 4 * mib).ok());
    CHECK(segment(backend, 2 * mib) == a);
    CHECK(segment(backend, 6 * mib) == b + 2 * mib);
    Address none = 0;
    CHECK(backend.segment_alloc(2 * mib, &none).kind == BackendStatus::Kind::out_of_memory);
    CHECK(backend.used() == 10 * mib);
    CHECK(backend.peak() == 10 * mib);
    CHECK(backend.segments() == 3);
    CHECK(backend.problems().empty());
}

TEST_CASE("a fence completes when the work before it has") {
    SimulatedBackend backend(gib);
    CHECK(fence(backend) == 0);
    const auto first = backend.submit();
    const Fence a = fence(backend);
    const auto second = backend.submit();
    const Fence b = fence(backend);
    CHECK(fence(backend) == b);
    CHECK(backend.fences() == 3);
    CHECK(backend.fence_query(a) == FenceState::pending);
    backend.advance_to(first);
    CHECK(backend.fence_query(a) == FenceState::complete);
    CHECK(backend.fence_query(b) == FenceState::pending);
    backend.advance_to(0);
    CHECK(backend.completed() == first);
    CHECK(backend.fence_wait_host(b).ok());
    CHECK(backend.completed() == second);
    for (const Fence each : {a, b, b}) {
        backend.fence_release(each);
    }
    CHECK(backend.fences() == 0);
    CHECK(backend.problems().empty());
    backend.fence_release(b);
    CHECK(backend.problems().size() == 1);
}

TEST_CASE("an access before the other owner's work is finished or ordered is a problem") {
    SimulatedBackend backend(gib);
    const Address memory = segment(backend, 2 * mib);
    backend.access(1, memory, 1024);
    const Fence after = fence(backend);

    SECTION("unordered") {
        backend.access(2, memory + 512, 1024);
        CHECK(backend.problems().size() == 1);
    }
    SECTION("the same owner") {
        backend.access(1, memory, 512);
    }
    SECTION("elsewhere") {
        backend.access(2, memory + 1024, 512);
    }
    SECTION("finished") {
        backend.advance_all();
        backend.access(2, memory, 512);
    }
    SECTION("ordered on the device") {
        CHECK(backend.fence_wait_device(after).ok());
        backend.access(2, memory, 512);
    }
    SECTION("ordered, but behind an earlier point only") {
        backend.access(1, memory, 512);
        CHECK(backend.fence_wait_device(after).ok());
        backend.access(2, memory, 512);
        CHECK(backend.problems().size() == 1);
    }
    SECTION("outside") {
        backend.access(1, memory + 2 * mib - 1, 2);
        CHECK(backend.problems().size() == 1);
    }
    SECTION("freed: the free has waited for the work") {
        CHECK(backend.segment_free(memory, 2 * mib).ok());
        CHECK(backend.completed() == 1);
        CHECK(segment(backend, 2 * mib) == memory);
        backend.access(2, memory, 512);
    }
    backend.fence_release(after);
}

TEST_CASE("ranges have addresses, and memory where it is mapped") {
    SimulatedBackend backend(10 * mib, 0x1000000);
    Address base = 0;
    REQUIRE(backend.range_reserve(&base, 100 * mib).ok());
    CHECK(base == 0x1000000);
    CHECK(backend.used() == 0);
    CHECK(segment(backend, 2 * mib) == base + 100 * mib);
    CHECK(backend.pages_map(base + 4 * mib, 4 * mib, 2 * mib).ok());
    CHECK(backend.pages_map(base + 8 * mib, 2 * mib, 2 * mib).ok());
    CHECK(backend.used() == 8 * mib);
    CHECK(backend.mapped() == 6 * mib);
    CHECK(backend.pages_map(base, 4 * mib, 2 * mib).kind == BackendStatus::Kind::out_of_memory);
    backend.access(1, base + 4 * mib, 6 * mib);
    CHECK(backend.problems().empty());

    SECTION("a part is unmapped when its work is done") {
        CHECK(backend.pages_unmap(base + 6 * mib, 4 * mib).ok());
        CHECK(backend.completed() == 1);
        CHECK(backend.mapped() == 2 * mib);
        CHECK(backend.problems().empty());
        CHECK_FALSE(backend.range_release(base, 100 * mib).ok());
        CHECK(backend.problems().size() == 1);
        CHECK(backend.pages_unmap(base + 4 * mib, 2 * mib).ok());
        CHECK(backend.range_release(base, 100 * mib).ok());
        CHECK(backend.ranges() == 0);
        CHECK(backend.problems().size() == 1);
    }
    SECTION("accesses beside it") {
        backend.access(1, base + 4 * mib - 1, 2);
        CHECK(backend.problems().size() == 1);
        backend.access(1, base + 10 * mib - 1, 2);
        CHECK(backend.problems().size() == 2);
        backend.access(1, base + 50 * mib, 1);
        CHECK(backend.problems().size() == 3);
    }
    SECTION("pages that are there, or are not") {
        CHECK_FALSE(backend.pages_map(base + 2 * mib, 4 * mib, 2 * mib).ok());
        CHECK_FALSE(backend.pages_unmap(base + 8 * mib, 4 * mib).ok());
        CHECK_FALSE(backend.pages_unmap(base + 100 * mib, 2 * mib).ok());
        CHECK_FALSE(backend.pages_map(base + 98 * mib, 4 * mib, 2 * mib).ok());
        CHECK(backend.problems().size() == 4);
    }
}

TEST_CASE("breaches of the contract are kept") {
    SimulatedBackend backend(gib);
    Address address = 0;
    SECTION("odd sizes") {
        backend.segment_alloc(mib, &address);
    }
    SECTION("a free of nothing") {
        CHECK_FALSE(backend.segment_free(4096, 2 * mib).ok());
    }
    SECTION("a free of a part") {
        backend.segment_alloc(4 * mib, &address);
        CHECK_FALSE(backend.segment_free(address, 2 * mib).ok());
    }
    SECTION("a query of an unknown fence") {
        CHECK(backend.fence_query(77) == FenceState::failed);
    }
    SECTION("a wait for an unknown fence") {
        CHECK_FALSE(backend.fence_wait_host(77).ok());
    }
    SECTION("a fence released under its waiter") {
        backend.submit();
        const Fence waited = fence(backend);
        backend.set_host_wait_hook([&] { backend.fence_release(waited); });
        CHECK_FALSE(backend.fence_wait_host(waited).ok());
    }
    CHECK(backend.problems().size() == 1);
}

TEST_CASE("failures come when they are asked for") {
    SimulatedBackend backend(gib);
    backend.fail(Call::segment_alloc, 2, {BackendStatus::Kind::error, 5});
    Address address = 0;
    CHECK(backend.segment_alloc(2 * mib, &address).ok());
    CHECK(backend.segment_alloc(2 * mib, &address).code == 5);
    CHECK(backend.segment_alloc(2 * mib, &address).ok());
    CHECK(backend.calls(Call::segment_alloc) == 3);
    backend.fail(Call::segment_alloc, 1, {BackendStatus::Kind::error, 5});
    backend.clear_failures();
    CHECK(backend.segment_alloc(2 * mib, &address).ok());

    backend.submit();
    const Fence before = fence(backend);
    backend.advance_all();
    backend.submit();
    const Fence after = fence(backend);
    backend.break_context(700);
    CHECK(backend.fence_query(before) == FenceState::complete);
    CHECK(backend.fence_query(after) == FenceState::failed);
    CHECK(backend.fence_wait_host(after).code == 700);
    CHECK(backend.fence_wait_device(after).code == 700);
    CHECK(backend.segment_alloc(2 * mib, &address).code == 700);
    Fence none = 0;
    CHECK(backend.fence_record(&none).code == 700);
    CHECK(backend.problems().empty());
}

}  // namespace memlab::allocator::testing
