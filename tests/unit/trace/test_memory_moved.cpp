// Memory that steps aside: what is reserved dips, and nothing else changes.
#include <cstdint>

#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/aggregate/aggregator.hpp"

using namespace memlab::trace;

namespace {

constexpr std::uint64_t moved_mib = std::uint64_t{1} << 20;

/// A GPU with a pool of three chunks, one of them in use, and memory of the driver's.
struct MovingGpu {
    MovingGpu() {
        aggregator.on(ProcessInfo{.pid = 1, .executable = "/bin/train"});
        aggregator.on(DeviceInfo{.index = 0, .total_bytes = 1024 * moved_mib});
        aggregator.on(ContextInfo{.id = 1, .device = 0, .primary = true});
        for (std::uint64_t chunk = 0; chunk < 3; ++chunk) {
            event(EventType::segment_map, Origin::pool, chunk * 10 * moved_mib, 10 * moved_mib);
        }
        event(EventType::alloc, Origin::pool, 0, 5 * moved_mib);
        event(EventType::alloc, Origin::driver, 900 * moved_mib, 7 * moved_mib);
    }
    void event(EventType type, Origin origin, std::uint64_t address, std::uint64_t bytes,
               MemoryKind kind = MemoryKind::device) {
        aggregator.on(Event{.type = type,
                            .kind = kind,
                            .origin = origin,
                            .context = 1,
                            .thread = 7,
                            .time_ns = ++now,
                            .address = 1024 * moved_mib + address,
                            .requested = type == EventType::alloc ? bytes : 0,
                            .size = bytes});
    }
    void move(std::uint64_t away) {
        aggregator.on(MemoryMoved{.time_ns = ++now, .device = 0, .away = away});
    }
    const DeviceTotals& device() const { return *aggregator.devices()[0]; }
    std::uint64_t reserved() const {
        return device().curve(CurveName::reserved).current / moved_mib;
    }
    std::uint64_t allocated() const {
        return device().curve(CurveName::allocated).current / moved_mib;
    }

    Aggregator aggregator;
    std::uint64_t now = 0;
};

}  // namespace

TEST_CASE("memory that is away is not reserved and not freed") {
    MovingGpu gpu;
    REQUIRE(gpu.reserved() == 37);
    gpu.move(30 * moved_mib);
    CHECK(gpu.reserved() == 7);
    CHECK(gpu.allocated() == 12);
    CHECK(gpu.device().kinds[0].live_count == 2);
    gpu.move(0);
    CHECK(gpu.reserved() == 37);
    CHECK(gpu.device().curve(CurveName::reserved).peak == 37 * moved_mib);
    REQUIRE(gpu.device().absences.size() == 1);
    CHECK(gpu.device().absences[0].bytes == 30 * moved_mib);
    CHECK(gpu.device().absences[0].end_ns > gpu.device().absences[0].begin_ns);
}

TEST_CASE("what leaves the pool while it is away is gone when the rest is back") {
    MovingGpu gpu;
    gpu.move(20 * moved_mib);
    CHECK(gpu.reserved() == 17);
    gpu.event(EventType::segment_unmap, Origin::pool, 10 * moved_mib, 10 * moved_mib);
    gpu.event(EventType::segment_unmap, Origin::pool, 20 * moved_mib, 10 * moved_mib);
    CHECK(gpu.reserved() == 17);
    gpu.event(EventType::free_requested, Origin::driver, 900 * moved_mib, 7 * moved_mib);
    CHECK(gpu.reserved() == 10);
    gpu.move(0);
    CHECK(gpu.reserved() == 10);
    gpu.event(EventType::segment_map, Origin::pool, 10 * moved_mib, 10 * moved_mib);
    CHECK(gpu.reserved() == 20);
    CHECK(gpu.device().absence_count == 1);
}

TEST_CASE("more cannot be away than the pool has, and the list of absences ends") {
    MovingGpu gpu;
    gpu.move(~std::uint64_t{0});
    CHECK(gpu.reserved() == 7);
    gpu.move(10 * moved_mib);
    CHECK(gpu.reserved() == 27);
    for (std::size_t i = 0; i < 2 * DeviceTotals::max_absences; ++i) {
        gpu.move(0);
        gpu.move(moved_mib);
    }
    CHECK(gpu.device().absences.size() == DeviceTotals::max_absences);
    CHECK(gpu.device().absence_count == 2 * DeviceTotals::max_absences + 1);
    gpu.move(0);
    CHECK(gpu.reserved() == 37);
}

TEST_CASE("memory that the program maps itself may be away, too") {
    MovingGpu gpu;
    gpu.event(EventType::alloc, Origin::driver, 950 * moved_mib, 8 * moved_mib, MemoryKind::vmm);
    REQUIRE(gpu.reserved() == 45);
    gpu.move(~std::uint64_t{0});
    CHECK(gpu.reserved() == 7);
    CHECK(gpu.allocated() == 20);
    gpu.event(EventType::free_requested, Origin::driver, 950 * moved_mib, 8 * moved_mib,
              MemoryKind::vmm);
    CHECK(gpu.reserved() == 7);
    gpu.event(EventType::free_requested, Origin::driver, 900 * moved_mib, 7 * moved_mib);
    CHECK(gpu.reserved() == 0);
    gpu.move(0);
    CHECK(gpu.reserved() == 30);
}

TEST_CASE("with the context its memory is gone, away or not") {
    MovingGpu gpu;
    gpu.move(20 * moved_mib);
    gpu.aggregator.on(ContextLost{.time_ns = ++gpu.now, .context = 1});
    CHECK(gpu.reserved() == 0);
    CHECK(gpu.allocated() == 0);
    gpu.move(0);
    CHECK(gpu.reserved() == 0);
}
