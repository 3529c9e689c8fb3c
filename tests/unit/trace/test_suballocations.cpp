// Allocators of the program's that a recording sees from inside: figures of their own, and nothing
// counted twice.
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::trace;

namespace {

constexpr std::uint64_t one_mib = std::uint64_t{1} << 20;
constexpr std::uint32_t of_allocator = DeviceInfo::suballocator_index(0, 0);

/// A GPU, PyTorch's cache on it, and a context.
struct TwoLevels {
    TwoLevels() {
        aggregator.on(ProcessInfo{.pid = 1, .executable = "/bin/train"});
        aggregator.on(DeviceInfo{.index = 0, .total_bytes = 1024 * one_mib});
        aggregator.on(DeviceInfo{.index = of_allocator,
                                 .total_bytes = 1024 * one_mib,
                                 .allocator = "PyTorch",
                                 .gpu = 0});
        aggregator.on(ContextInfo{.id = 1, .device = 0, .primary = true});
        aggregator.on(StringDef{1, "PyTorch"});
        aggregator.on(StringDef{2, "step"});
    }
    /// By the driver. `cut`: it is known that PyTorch cuts it.
    void driver(EventType type, std::uint64_t address, std::uint64_t bytes, bool cut = false) {
        aggregator.on(Event{.type = type,
                            .context = 1,
                            .thread = 7,
                            .name = cut ? 1U : 0U,
                            .address = address,
                            .requested = bytes,
                            .size = bytes});
    }
    void inside(EventType type, std::uint64_t address, std::uint64_t bytes,
                std::uint32_t device = of_allocator) {
        aggregator.on(Event{.type = type,
                            .kind = MemoryKind::suballocation,
                            .origin = Origin::pool,
                            .device = device,
                            .context = 1,
                            .thread = 7,
                            .address = address,
                            .requested = bytes,
                            .size = bytes});
    }
    void free(std::uint64_t address, std::uint64_t bytes) {
        inside(EventType::free_requested, address, bytes);
        inside(EventType::free_completed, address, bytes);
    }
    void scope(EventType type) {
        aggregator.on(Event{.type = type, .thread = 7, .name = 2, .requested = 3, .size = 1});
    }
    std::uint64_t allocated(std::uint32_t device) const {
        return now(device, CurveName::allocated);
    }
    std::uint64_t now(std::uint32_t device, CurveName curve) const {
        return aggregator.devices()[device]->curve(curve).current;
    }

    Aggregator aggregator;
};

}  // namespace

TEST_CASE("each level has figures of its own, at the same addresses") {
    TwoLevels to;
    to.driver(EventType::alloc, 0x1000000, 20 * one_mib, true);
    to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
    to.inside(EventType::alloc, 0x1000000, 3 * one_mib);
    to.inside(EventType::alloc, 0x1000000 + 3 * one_mib, one_mib);
    CHECK(to.allocated(0) == 20 * one_mib);
    CHECK(to.now(0, CurveName::reserved) == 20 * one_mib);
    CHECK(to.allocated(of_allocator) == 4 * one_mib);
    CHECK(to.now(of_allocator, CurveName::reserved) == 20 * one_mib);
    to.free(0x1000000, 3 * one_mib);
    CHECK(to.allocated(0) == 20 * one_mib);
    CHECK(to.allocated(of_allocator) == one_mib);
    CHECK(to.aggregator.composition_now(of_allocator, 9).bytes == one_mib);
    CHECK(to.aggregator.composition_at_peak(of_allocator, 9).bytes == 4 * one_mib);
    const MemoryStats& stats = to.aggregator.devices()[of_allocator]->pool.stats;
    CHECK(stats.allocation.all.allocated == 2);
    CHECK(stats.allocated_bytes.all.peak == 4 * one_mib);
    to.inside(EventType::segment_free, 0x1000000, 20 * one_mib);
    to.driver(EventType::free_requested, 0x1000000, 20 * one_mib);
    CHECK(to.allocated(0) == 0);
    CHECK(to.allocated(of_allocator) == 0);
    CHECK(to.now(of_allocator, CurveName::reserved) == 0);
    CHECK(to.aggregator.integrity().unmatched_frees == 0);
}

TEST_CASE("scopes and steps count what is cut as what it is cut into") {
    TwoLevels to;
    const bool known_before = GENERATE(true, false);
    CAPTURE(known_before);
    to.driver(EventType::alloc, 0x9000000, one_mib);  // not PyTorch's
    if (!known_before) {
        // Which allocation is a segment is told later, here before the first scope.
        to.driver(EventType::alloc, 0x1000000, 20 * one_mib, false);
        to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
    }
    for (int step = 0; step < 3; ++step) {
        to.scope(EventType::scope_begin);
        if (known_before && step == 0) {
            to.driver(EventType::alloc, 0x1000000, 20 * one_mib, true);
            to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
        }
        to.inside(EventType::alloc, 0x1000000, 2 * one_mib);
        to.free(0x1000000, 2 * one_mib);
        to.scope(EventType::scope_end);
    }
    const auto scopes = to.aggregator.scopes().totals(0);
    REQUIRE(scopes.size() == 1);
    CHECK(scopes[0].allocated_count == 3);
    CHECK(scopes[0].allocated_bytes == 6 * one_mib);
    CHECK(scopes[0].freed_bytes == 6 * one_mib);
    CHECK(scopes[0].peak_bytes == 3 * one_mib);
    CHECK(scopes[0].escaped_bytes == 0);
    const auto steps = to.aggregator.steps();
    REQUIRE(steps.size() == 1);
    CHECK(steps[0].growing.empty());
}

TEST_CASE("a label names the tensor, not the segment below it") {
    TwoLevels to;
    to.driver(EventType::alloc, 0x1000000, 20 * one_mib, true);
    to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
    const auto label = [&] {
        to.aggregator.on(Event{.type = EventType::label, .name = 2, .address = 0x1000000});
    };
    label();  // of the segment, which is nobody's
    CHECK_FALSE(to.aggregator.labels().any_live());
    to.inside(EventType::alloc, 0x1000000, 3 * one_mib);
    label();
    const auto largest = to.aggregator.largest_live(2);
    REQUIRE(largest.size() == 2);
    CHECK(largest[0].size == 20 * one_mib);
    CHECK(largest[0].label == 0);
    CHECK(largest[1].label == 2);
    to.free(0x1000000, 3 * one_mib);
    CHECK_FALSE(to.aggregator.labels().any_live());
}

TEST_CASE("an allocator that ran out knows what else the process holds there") {
    TwoLevels to;
    to.driver(EventType::alloc, 0x9000000, 5 * one_mib);
    to.driver(EventType::alloc, 0x1000000, 20 * one_mib, true);
    to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
    to.inside(EventType::alloc, 0x1000000, 3 * one_mib);
    to.aggregator.on(OomEvent{.device = of_allocator,
                              .context = 1,
                              .kind = MemoryKind::suballocation,
                              .requested = 100 * one_mib});
    REQUIRE(to.aggregator.ooms().size() == 1);
    const OomTotals& oom = to.aggregator.ooms()[0];
    CHECK(oom.pool.reserved == 20 * one_mib);
    CHECK(oom.pool.allocated == 3 * one_mib);
    CHECK(oom.reserved_beside == 5 * one_mib);
    CHECK(oom.holders.bytes == 3 * one_mib);
    CHECK(to.aggregator.devices()[of_allocator]->pool.stats.num_ooms == 1);
    CHECK(to.aggregator.devices()[0]->pool.stats.num_ooms == 0);
}

TEST_CASE("what a context's end takes, it takes from both levels") {
    TwoLevels to;
    to.driver(EventType::alloc, 0x1000000, 20 * one_mib, true);
    to.inside(EventType::segment_alloc, 0x1000000, 20 * one_mib);
    to.inside(EventType::alloc, 0x1000000, 3 * one_mib);
    to.aggregator.on(ContextLost{.time_ns = 5, .context = 1});
    for (const std::uint32_t device : {std::uint32_t{0}, of_allocator}) {
        CHECK(to.allocated(device) == 0);
        CHECK(to.now(device, CurveName::reserved) == 0);
    }
}

TEST_CASE("an allocator may cut another's block at the very same address") {
    constexpr std::uint32_t arena = DeviceInfo::suballocator_index(1, 0);
    constexpr std::uint64_t base = 0x1000000;
    TwoLevels to;
    to.aggregator.on(
        DeviceInfo{.index = arena, .total_bytes = 1024 * one_mib, .allocator = "arena", .gpu = 0});
    to.scope(EventType::scope_begin);
    to.driver(EventType::alloc, base, 20 * one_mib, true);
    to.inside(EventType::segment_alloc, base, 20 * one_mib);
    to.inside(EventType::alloc, base, 8 * one_mib);
    to.inside(EventType::segment_alloc, base, 8 * one_mib, arena);
    to.inside(EventType::alloc, base, one_mib, arena);
    CHECK(to.allocated(0) == 20 * one_mib);
    CHECK(to.allocated(of_allocator) == 8 * one_mib);
    CHECK(to.allocated(arena) == one_mib);
    CHECK(to.now(arena, CurveName::reserved) == 8 * one_mib);
    to.aggregator.on(Event{.type = EventType::label, .name = 2, .address = base});
    const auto largest = to.aggregator.largest_live(3);
    REQUIRE(largest.size() == 3);
    CHECK(largest[1].label == 0);
    CHECK(largest[2].label == 2);
    CHECK(to.aggregator.suballocation_at(arena, base + one_mib - 1)->size == one_mib);
    CHECK(to.aggregator.suballocation_at(arena, base + one_mib) == nullptr);
    CHECK(to.aggregator.suballocation_at(of_allocator, base + one_mib)->size == 8 * one_mib);

    to.inside(EventType::free_requested, base, one_mib, arena);
    to.inside(EventType::free_completed, base, one_mib, arena);
    CHECK(to.allocated(of_allocator) == 8 * one_mib);
    to.inside(EventType::segment_free, base, 8 * one_mib, arena);
    to.free(base, 8 * one_mib);
    CHECK(to.allocated(of_allocator) == 0);
    CHECK(to.now(arena, CurveName::reserved) == 0);
    to.scope(EventType::scope_end);
    const auto scopes = to.aggregator.scopes().totals(0);
    REQUIRE(scopes.size() == 1);
    CHECK(scopes[0].peak_bytes == 8 * one_mib);  // before it was cut, PyTorch's block counts
    CHECK(scopes[0].escaped_bytes == 0);
    CHECK(to.aggregator.integrity().unmatched_frees == 0);
    CHECK(to.aggregator.integrity().overwritten_allocations == 0);
}
