// The aggregator against the naive model, and each of its guarantees.
#include "trace/aggregate/aggregator.hpp"

#include <algorithm>
#include <numeric>

#include "tests/catch.hpp"
#include "tests/unit/trace/aggregator_model.hpp"
#include "tests/unit/trace/recording.hpp"

using namespace memlab::test;
using namespace memlab::trace;

namespace {

/// A bucket's figures, computed from the full history.
Timeline::Bucket bucket_from(const std::vector<AggregatorModel::Moment>& history,
                             std::uint64_t start, std::uint64_t width, std::uint64_t index) {
    Timeline::Bucket bucket;
    const auto place = [&](const auto& moment) { return (moment.time - start) / width; };
    for (std::size_t i = 0; i < history.size(); ++i) {
        if (place(history[i]) != index) {
            continue;
        }
        if (!bucket.used) {
            bucket.used = true;
            bucket.min = bucket.max = history[i == 0 ? 0 : i - 1].values;
        }
        for (std::size_t curve = 0; curve < curve_count; ++curve) {
            const std::uint64_t value = history[i].values[curve];
            bucket.min[curve] = std::min(bucket.min[curve], value);
            const bool first = bucket.max[curve] == Timeline::unknown;
            if (value != Timeline::unknown && (first || value > bucket.max[curve])) {
                bucket.max[curve] = value;
            }
        }
        bucket.last = history[i].values;
    }
    return bucket;
}

/// The kinds of memory that have a curve of their own.
void check_kinds(const Aggregator& got, const DeviceTotals& device,
                 const AggregatorModel::Device& expected) {
    REQUIRE(device.kind_curves.size() == expected.kinds.size());
    for (const auto& [kind, of_kind] : expected.kinds) {
        CAPTURE(name_of(kind));
        const KindCurve& curve = *device.kind_curves.at(kind);
        CHECK(curve.curve().peak == of_kind.peak);
        CHECK(curve.curve().peak_time_ns == of_kind.peak_time);
        CHECK(curve.curve().current == of_kind.now);
        std::uint64_t highest = 0;
        std::uint64_t lowest_since = of_kind.peak;
        const auto& timeline = curve.timeline();
        for (std::size_t i = 0; i < timeline.buckets().size(); ++i) {
            const auto& bucket = timeline.buckets()[i];
            highest = bucket.used ? std::max(highest, bucket.max[0]) : highest;
            // Whole buckets behind the peak.
            if (bucket.used && timeline.start_ns() + i * timeline.bucket_ns() > of_kind.peak_time) {
                lowest_since = std::min(lowest_since, bucket.min[0]);
            }
        }
        CHECK(highest == of_kind.peak);
        CHECK(lowest_since >= of_kind.lowest_since_peak);
        CHECK(timeline.buckets().back().last[0] == of_kind.now);
        const std::uint32_t index = device.info.index;
        const Composition at_peak = got.kind_at_peak(index, kind, 1000);
        CHECK(at_peak.bytes == of_kind.peak);
        CHECK(got.kind_now(index, kind, 1000).bytes == of_kind.now);
        std::map<AggregatorModel::SiteKey, std::pair<std::uint64_t, std::uint64_t>> holders;
        for (const Holder& holder : at_peak.sites) {
            const Site& site = got.sites()[holder.site];
            holders[{site.stack, site.api, site.kind, site.device}] = {holder.count, holder.bytes};
        }
        CHECK(holders == of_kind.at_peak);
    }
}

void check_equal(const Aggregator& got, const AggregatorModel& model) {
    CHECK(got.duration_ns() == model.now);
    CHECK(got.integrity().unmatched_frees == model.unmatched_frees);
    CHECK(got.integrity().unmatched_segment_frees == model.unmatched_segment_frees);
    CHECK(got.integrity().overwritten_allocations == model.overwritten);
    CHECK(got.integrity().overwritten_segments == model.overwritten_segments);
    CHECK_FALSE(got.integrity().incomplete);
    check_scopes(got.scopes().totals(got.duration_ns()), model.scopes, model.now);
    for (const auto& device : got.devices()) {
        const std::uint32_t index = device->info.index;
        CAPTURE(index);
        const auto at = model.devices.find(index);
        REQUIRE(at != model.devices.end());
        const AggregatorModel::Device& expected = at->second;
        const Timeline::Values now = model.values(index);
        for (std::size_t curve = 0; curve < curve_count; ++curve) {
            CAPTURE(curve);
            CHECK(device->curves[curve].peak == expected.peak[curve]);
            CHECK(device->curves[curve].peak_time_ns == expected.peak_time[curve]);
            if (curve < 4 || device->sampled) {
                CHECK(device->curves[curve].current == now[curve]);
            }
        }
        CHECK(device->sampled == expected.used.has_value());
        const MemoryStats& stats = device->pool.stats;
        CHECK(stats.allocation == expected.stats.allocation);
        CHECK(stats.segment == expected.stats.segment);
        CHECK(stats.active == expected.stats.active);
        CHECK(stats.inactive_split == expected.stats.inactive_split);
        CHECK(stats.allocated_bytes == expected.stats.allocated_bytes);
        CHECK(stats.reserved_bytes == expected.stats.reserved_bytes);
        CHECK(stats.active_bytes == expected.stats.active_bytes);
        CHECK(stats.inactive_split_bytes == expected.stats.inactive_split_bytes);
        CHECK(stats.requested_bytes == expected.stats.requested_bytes);
        CHECK(stats == expected.stats);
        // The timeline as if its final width had been known from the start.
        const Timeline& timeline = device->timeline;
        REQUIRE(timeline.buckets().size() <= Timeline::max_buckets);
        REQUIRE(timeline.start_ns() == expected.history.front().time);
        Timeline::Values highest{};
        for (std::size_t i = 0; i < timeline.buckets().size(); ++i) {
            const Timeline::Bucket& bucket = timeline.buckets()[i];
            if (bucket.used) {
                for (std::size_t curve = 0; curve < curve_count; ++curve) {
                    if (bucket.max[curve] != Timeline::unknown) {
                        highest[curve] = std::max(highest[curve], bucket.max[curve]);
                    }
                }
            }
            if (i % 37 != 0) {  // each is a walk through the whole history
                continue;
            }
            const Timeline::Bucket direct =
                bucket_from(expected.history, timeline.start_ns(), timeline.bucket_ns(), i);
            REQUIRE(bucket.used == direct.used);
            if (bucket.used) {
                REQUIRE(bucket.min == direct.min);
                REQUIRE(bucket.max == direct.max);
                REQUIRE(bucket.last == direct.last);
            }
        }
        CHECK(highest == expected.peak);
        check_kinds(got, *device, expected);
        const Composition at_peak = got.composition_at_peak(index, 5);
        CHECK(at_peak.bytes == device->curve(CurveName::allocated).peak);
        CHECK(got.composition_now(index, 5).bytes == device->curve(CurveName::allocated).current);
        CHECK(std::accumulate(at_peak.sites.begin(), at_peak.sites.end(), at_peak.other_bytes,
                              [](std::uint64_t sum, const Holder& each) {
                                  return sum + each.bytes;
                              }) == at_peak.bytes);
    }
    REQUIRE(got.sites().size() == model.sites.size());
    for (std::uint32_t index = 0; index < got.sites().size(); ++index) {
        const Site& site = got.sites()[index];
        CAPTURE(index);
        const auto at = model.sites.find({site.stack, site.api, site.kind, site.device});
        REQUIRE(at != model.sites.end());
        AggregatorModel::SiteFigures expected = at->second;
        CHECK(site.count == expected.count);
        CHECK(site.requested_bytes == expected.requested);
        CHECK(site.bytes == expected.bytes);
        CHECK(site.peak_bytes == expected.peak);
        CHECK(site.peak_time_ns == expected.peak_time);
        CHECK(site.live_count == expected.live.first);
        CHECK(site.live_bytes == expected.live.second);
        CHECK(site.temporaries == expected.temporaries);
        CHECK(site.segment_bytes == expected.segments);
        const Holder at_peak = got.held_at_peak(index);
        CHECK(std::pair(at_peak.count, at_peak.bytes) == expected.at_peak);
        const Collected collected = got.collected(index);
        CHECK(std::pair(collected.count, collected.bytes) == expected.collected);
        CHECK(std::pair(collected.at_peak_count, collected.at_peak_bytes) ==
              expected.collected_at_peak);
        auto& lifetimes = expected.lifetimes;
        std::sort(lifetimes.begin(), lifetimes.end());
        REQUIRE(site.lifetimes.empty() == lifetimes.empty());
        if (!lifetimes.empty()) {
            CHECK(site.lifetimes.min() == lifetimes.front());
            CHECK(site.lifetimes.max() == lifetimes.back());
            const auto median = static_cast<double>(lifetimes[(lifetimes.size() - 1) / 2]);
            const auto estimate = static_cast<double>(site.lifetimes.median());
            CHECK(estimate >= median * (1 - 0.0625));
            CHECK(estimate <= median * (1 + 0.0625));
        }
    }
}

Event pool_event(EventType type, std::uint64_t address, std::uint64_t size,
                 std::uint64_t time = 0) {
    Event event;
    event.type = type;
    event.origin = Origin::pool;
    event.address = address;
    event.requested = size;
    event.size = size;
    event.time_ns = time;
    event.context = 1;
    return event;
}

void define_device(RecordSink& sink) {
    sink.on(DeviceInfo{.index = 0, .total_bytes = 1 << 30});
    sink.on(ContextInfo{.id = 1, .device = 0, .primary = true});
}

constexpr std::uint64_t mib = 1 << 20;

}  // namespace

TEST_CASE("the aggregator agrees with the obvious model") {
    std::uint64_t segments_full_of_holes = 0;
    for (std::uint64_t seed = 1; seed <= 60; ++seed) {
        CAPTURE(seed);
        const Records records = PlausibleRecords::make(seed, 1500);
        Aggregator aggregator;
        AggregatorModel model;
        for (const AnyRecord& record : records) {
            feed(record, aggregator);
            model.on(record);
        }
        check_equal(aggregator, model);
        segments_full_of_holes +=
            aggregator.devices()[0]->pool.stats.inactive_split.all.peak > 3 ? 1 : 0;
    }
    CHECK(segments_full_of_holes > 20);  // the layout was exercised
}

TEST_CASE("the figures are right at every moment, not only at the end") {
    const Records records = PlausibleRecords::make(99, 600);
    Aggregator aggregator;
    AggregatorModel model;
    for (const AnyRecord& record : records) {
        feed(record, aggregator);
        model.on(record);
        for (const auto& device : aggregator.devices()) {
            const Timeline::Values values = model.values(device->info.index);
            for (std::size_t curve = 0; curve < 4; ++curve) {
                REQUIRE(device->curves[curve].current == values[curve]);
            }
        }
    }
}

TEST_CASE("PyTorch's four lines") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "mark"});
    const auto mark = [&](std::uint64_t time) {
        Event event;
        event.type = EventType::mark;
        event.name = 1;
        event.time_ns = time;
        aggregator.on(event);
    };
    mark(1);
    aggregator.on(pool_event(EventType::segment_alloc, 20 * mib, 20 * mib, 2));
    aggregator.on(pool_event(EventType::alloc, 20 * mib, 4000256, 2));
    mark(3);
    aggregator.on(pool_event(EventType::free_requested, 20 * mib, 4000256, 4));
    aggregator.on(pool_event(EventType::free_completed, 20 * mib, 4000256, 4));
    mark(5);
    aggregator.on(pool_event(EventType::segment_free, 20 * mib, 20 * mib, 6));
    mark(7);
    REQUIRE(aggregator.marks().size() == 4);
    const auto line = [&](std::size_t i) {
        const MarkedDevice& device = aggregator.marks()[i].devices.at(0);
        return std::pair(device.current[1], device.current[3]);
    };
    CHECK(line(0) == std::pair<std::uint64_t, std::uint64_t>(0, 0));
    CHECK(line(1) == std::pair<std::uint64_t, std::uint64_t>(4000256, 20 * mib));
    CHECK(line(2) == std::pair<std::uint64_t, std::uint64_t>(0, 20 * mib));
    CHECK(line(3) == std::pair<std::uint64_t, std::uint64_t>(0, 0));
    CHECK(aggregator.marks()[2].devices[0].allocated_peak == 4000256);
    CHECK(aggregator.marks()[3].devices[0].allocated_peak == 0);
    CHECK(aggregator.marks()[3].devices[0].reserved_peak == 20 * mib);
}

TEST_CASE("memory_stats: the pools, active and inactive split, as PyTorch counts them") {
    Aggregator aggregator;
    define_device(aggregator);
    const auto feed_event = [&](EventType type, std::uint64_t address, std::uint64_t size) {
        aggregator.on(pool_event(type, address, size));
    };
    const MemoryStats& stats = aggregator.devices()[0]->pool.stats;
    feed_event(EventType::segment_alloc, 2 * mib, 2 * mib);
    feed_event(EventType::segment_alloc, 20 * mib, 20 * mib);
    CHECK(stats.inactive_split.all.current == 0);  // whole segments are not split
    feed_event(EventType::alloc, 2 * mib, 512);
    CHECK(stats.inactive_split.small_pool.current == 1);
    CHECK(stats.inactive_split_bytes.small_pool.current == 2 * mib - 512);
    feed_event(EventType::alloc, 2 * mib + 1024, 512);
    CHECK(stats.inactive_split.small_pool.current == 2);
    feed_event(EventType::alloc, 20 * mib, 20 * mib);
    CHECK(stats.inactive_split.large_pool.current == 0);  // it fills its segment
    CHECK(stats.active_bytes.large_pool.current == 20 * mib);
    feed_event(EventType::free_requested, 2 * mib + 1024, 512);
    CHECK(stats.allocation.small_pool.current == 1);
    CHECK(stats.active.small_pool.current == 2);
    CHECK(stats.inactive_split.small_pool.current == 2);
    feed_event(EventType::free_completed, 2 * mib + 1024, 512);
    CHECK(stats.active.small_pool.current == 1);
    CHECK(stats.inactive_split.small_pool.current == 1);
    feed_event(EventType::free_requested, 2 * mib, 512);
    feed_event(EventType::free_completed, 2 * mib, 512);
    CHECK(stats.inactive_split.small_pool.current == 0);
    CHECK(stats.inactive_split_bytes.all.current == 0);
    CHECK(stats.reserved_bytes.all.current == 22 * mib);
    CHECK(stats.segment.small_pool.current == 1);
    CHECK(stats.num_device_alloc == 2);
    CHECK(aggregator.integrity().unmatched_frees == 0);
}

TEST_CASE("recent peaks begin again where they are told to, and are no part of the state") {
    Aggregator aggregator;
    define_device(aggregator);
    const MemoryStats& stats = aggregator.devices()[0]->pool.stats;
    const StatByPool& allocated = stats.allocated_bytes;
    const auto allocate_and_free = [&](std::uint64_t size) {
        aggregator.on(pool_event(EventType::alloc, 22 * mib, size));
        aggregator.on(pool_event(EventType::free_requested, 22 * mib, size));
        aggregator.on(pool_event(EventType::free_completed, 22 * mib, size));
    };
    aggregator.on(pool_event(EventType::segment_alloc, 20 * mib, 20 * mib));
    aggregator.on(pool_event(EventType::alloc, 20 * mib, 2 * mib));
    allocate_and_free(8 * mib);
    CHECK(allocated.all.recent_peak == 10 * mib);
    const MemoryStats before = stats;
    aggregator.restart_recent_peaks(0);
    CHECK(stats == before);
    CHECK(allocated.all.recent_peak == 2 * mib);
    CHECK(allocated.small_pool.recent_peak == 0);
    CHECK(stats.reserved_bytes.all.recent_peak == 20 * mib);
    allocate_and_free(4 * mib);
    CHECK(allocated.large_pool.recent_peak == 6 * mib);
    CHECK(stats.active.all.recent_peak == 2);
    CHECK(allocated.all.peak == 10 * mib);
    aggregator.restart_recent_peaks(0);
    CHECK(allocated.all.recent_peak == 2 * mib);
}

TEST_CASE("the three fragmentation figures") {
    Aggregator aggregator;
    define_device(aggregator);
    const Fragmentation& figures = aggregator.devices()[0]->fragmentation;
    aggregator.on(pool_event(EventType::segment_alloc, 100 * mib, 20 * mib));
    CHECK(figures.total_free == 0);  // nothing was free when it grew
    for (std::uint64_t i = 0; i < 10; ++i) {
        Event alloc = pool_event(EventType::alloc, (100 + 2 * i) * mib, 2 * mib);
        alloc.requested = mib;
        aggregator.on(alloc);
    }
    for (std::uint64_t i = 0; i < 10; i += 2) {
        aggregator.on(pool_event(EventType::free_requested, (100 + 2 * i) * mib, 2 * mib));
        aggregator.on(pool_event(EventType::free_completed, (100 + 2 * i) * mib, 2 * mib));
    }
    aggregator.on(pool_event(EventType::segment_alloc, 200 * mib, 4 * mib));
    CHECK(figures.total_free == 10 * mib);
    CHECK(figures.largest_free == 2 * mib);
    CHECK(figures.requested_at_peak == 10 * mib);
    CHECK(figures.allocated_at_peak == 20 * mib);
    CHECK(figures.peak_active == 20 * mib);
    CHECK(figures.peak_reserved == 24 * mib);
}

TEST_CASE("driver allocations are their own segments; host memory has a curve of its own") {
    Aggregator aggregator;
    define_device(aggregator);
    for (int kind = 0; kind < memory_kind_count; ++kind) {
        Event event;
        event.kind = static_cast<MemoryKind>(kind);
        event.address = 0x1000U + static_cast<unsigned>(kind);
        event.requested = event.size = std::uint64_t{1} << kind;
        aggregator.on(event);
    }
    std::uint64_t expected = 0;
    for (int kind = 0; kind < memory_kind_count; ++kind) {
        const bool counts = counts_as_device_memory(static_cast<MemoryKind>(kind));
        expected += counts ? std::uint64_t{1} << kind : 0;
        CHECK(aggregator.devices()[0]->kinds[static_cast<std::size_t>(kind)].live_bytes ==
              std::uint64_t{1} << kind);
    }
    for (std::size_t curve = 0; curve < 4; ++curve) {
        CHECK(aggregator.devices()[0]->curves[curve].current == expected);
    }
    CHECK(aggregator.devices()[0]->kind_curves.size() == 3);
    for (const auto& [kind, curve] : aggregator.devices()[0]->kind_curves) {
        CHECK(curve->curve().current == std::uint64_t{1} << static_cast<unsigned>(kind));
    }
    CHECK(aggregator.devices()[0]->pool.stats == MemoryStats{});
}

TEST_CASE("an array's handle and a pointer of the same value are two allocations") {
    Aggregator aggregator;
    define_device(aggregator);
    Event event;
    event.address = 4096;
    event.requested = event.size = 10;
    for (const MemoryKind kind : {MemoryKind::device, MemoryKind::array, MemoryKind::vmm}) {
        event.kind = kind;
        aggregator.on(event);
    }
    CHECK(aggregator.devices()[0]->curve(CurveName::allocated).current == 30);
    // cuMemFree of managed memory does not say what it frees.
    event.type = EventType::free_requested;
    event.kind = MemoryKind::managed;
    aggregator.on(event);
    CHECK(aggregator.devices()[0]->curve(CurveName::allocated).current == 20);
    CHECK(aggregator.integrity().overwritten_allocations == 0);
}

TEST_CASE("a lost context takes everything in it along, and nothing else") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(ContextInfo{.id = 2, .device = 0, .primary = false});
    aggregator.on(pool_event(EventType::segment_alloc, 2 * mib, 2 * mib));
    aggregator.on(pool_event(EventType::alloc, 2 * mib, 4096));
    aggregator.on(pool_event(EventType::alloc, 3 * mib, 4096));
    aggregator.on(pool_event(EventType::free_requested, 3 * mib, 4096));
    Event other;
    other.context = 2;
    other.address = 5;
    other.requested = other.size = 77;
    aggregator.on(other);
    aggregator.on(ContextLost{.time_ns = 50, .context = 1});
    for (std::size_t curve = 0; curve < 4; ++curve) {
        CHECK(aggregator.devices()[0]->curves[curve].current == 77);
    }
    CHECK(aggregator.devices()[0]->pool.stats.active.all.current == 0);
    CHECK(aggregator.contexts()[0].lost_time_ns == 50);
    CHECK(aggregator.contexts()[0].lost);
    CHECK_FALSE(aggregator.contexts()[1].lost);
    CHECK(aggregator.integrity().overwritten_allocations == 0);
    CHECK(aggregator.sites()[0].temporaries == 1);  // the freed one; the other was not freed
}

TEST_CASE("temporaries are freed before their thread allocates again, by whatever thread") {
    Aggregator aggregator;
    define_device(aggregator);
    const auto event = [&](EventType type, std::uint64_t address, std::uint32_t thread) {
        Event each;
        each.type = type;
        each.address = address;
        each.thread = thread;
        each.requested = each.size = 1;
        aggregator.on(each);
    };
    event(EventType::alloc, 1, 10);
    event(EventType::alloc, 2, 20);           // another thread's: no matter
    event(EventType::free_requested, 1, 20);  // temporary
    event(EventType::alloc, 3, 20);
    event(EventType::free_requested, 2, 20);  // 3 came between
    event(EventType::free_requested, 3, 20);  // temporary
    REQUIRE(aggregator.sites().size() == 1);
    CHECK(aggregator.sites()[0].temporaries == 2);
}

TEST_CASE("what a garbage collector freed is counted, and the part that was live at the peak") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{1, "a garbage collector"});
    const auto event = [&](EventType type, std::uint64_t address, std::uint32_t collector = 0) {
        Event each;
        each.type = type;
        each.address = address;
        each.name = collector;
        each.requested = each.size = address;
        aggregator.on(each);
    };
    const auto collected = [&] {
        const Collected all = aggregator.collected(0);
        return std::vector{all.count, all.bytes, all.at_peak_count, all.at_peak_bytes};
    };
    using Figures = std::vector<std::uint64_t>;
    event(EventType::alloc, 10);
    CHECK(collected() == Figures{0, 0, 0, 0});
    event(EventType::free_requested, 10, 1);
    CHECK(collected() == Figures{1, 10, 1, 10});
    event(EventType::alloc, 20);
    event(EventType::alloc, 30);  // the peak: 50
    CHECK(collected() == Figures{1, 10, 0, 0});
    event(EventType::free_requested, 20);
    event(EventType::alloc, 15);  // after the peak
    event(EventType::free_requested, 15, 1);
    event(EventType::free_requested, 30, 1);
    CHECK(collected() == Figures{3, 55, 1, 30});
    event(EventType::free_requested, 30, 1);  // was freed
    CHECK(collected() == Figures{3, 55, 1, 30});
}

TEST_CASE("OOMs name the holders; lists are bounded, counts are not") {
    Aggregator aggregator;
    define_device(aggregator);
    for (std::uint32_t i = 1; i <= 50; ++i) {
        aggregator.on(StackDef{.id = i, .frames = {{0, i}}});
        Event event;
        event.stack = i;
        event.address = i;
        event.requested = event.size = i * 1000;
        aggregator.on(event);
    }
    for (int i = 0; i < 40; ++i) {
        aggregator.on(OomEvent{.time_ns = 9, .device = 0, .requested = 1 << 30, .error = 2});
    }
    CHECK(aggregator.oom_count() == 40);
    REQUIRE(aggregator.ooms().size() == Aggregator::max_ooms);
    const Composition& holders = aggregator.ooms()[0].holders;
    CHECK(holders.bytes == 50 * 51 / 2 * 1000);
    CHECK(holders.sites.size() == Aggregator::max_oom_holders);
    CHECK(holders.sites[0].bytes == 50000);
    CHECK(holders.other_sites == 18);
    CHECK(holders.other_bytes == 18 * 19 / 2 * 1000);
    CHECK(aggregator.devices()[0]->pool.stats.num_ooms == 40);
    for (std::size_t i = 0; i < Aggregator::max_marks + 5; ++i) {
        Event mark;
        mark.type = EventType::mark;
        aggregator.on(mark);
    }
    CHECK(aggregator.marks().size() == Aggregator::max_marks);
    CHECK(aggregator.mark_count() == Aggregator::max_marks + 5);
}

TEST_CASE("labels name what lives, the largest live allocations carry them") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "weights"});
    aggregator.on(StringDef{.id = 2, .text = "cache"});
    const auto event = [&](EventType type, std::uint64_t address, std::uint64_t bytes,
                           std::uint32_t name) {
        aggregator.on(Event{
            .type = type, .name = name, .address = address, .requested = bytes, .size = bytes});
    };
    for (std::uint64_t i = 1; i <= 100; ++i) {
        event(EventType::alloc, i << 20, 1000 * i, 0);
    }
    event(EventType::label, 100 << 20, 0, 1);
    event(EventType::label, 99 << 20, 0, 1);
    event(EventType::label, 98 << 20, 0, 2);
    event(EventType::label, 99 << 20, 0, 2);  // the latest name counts
    event(EventType::label, 4711, 0, 1);      // nothing lives there
    event(EventType::free_requested, 98 << 20, 0, 0);
    event(EventType::label, 98 << 20, 0, 1);  // any more
    REQUIRE(aggregator.labels().totals().size() == 2);
    const LabelTotals& weights = aggregator.labels().totals()[0];
    CHECK(weights.name == 1);
    CHECK(weights.count == 2);
    CHECK(weights.live_count == 1);
    CHECK(weights.live_bytes == 100000);
    CHECK(weights.peak_bytes == 199000);
    const LabelTotals& cache = aggregator.labels().totals()[1];
    CHECK(cache.live_bytes == 99000);
    CHECK(cache.peak_bytes == 98000 + 99000);
    const std::vector<LiveTotals> largest = aggregator.largest_live(3);
    REQUIRE(largest.size() == 3);
    CHECK(largest[0].address == 100 << 20);
    CHECK(largest[0].label == 1);
    CHECK(largest[1].size == 99000);
    CHECK(largest[1].label == 2);
    CHECK(largest[2].size == 97000);
    CHECK(largest[2].label == 0);
    CHECK(aggregator.largest_live(1000).size() == 99);
}

TEST_CASE("a call site knows what its allocations were called, at an OOM what it holds") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "weights"});
    aggregator.on(StringDef{.id = 2, .text = "cache"});
    aggregator.on(StringDef{.id = 3, .text = "cuMemAllocPitch_v2"});
    const auto event = [&](EventType type, std::uint64_t address, std::uint64_t bytes,
                           std::uint32_t name, std::uint32_t api) {
        aggregator.on(Event{.type = type,
                            .api = api,
                            .name = name,
                            .address = address,
                            .requested = bytes,
                            .size = bytes});
    };
    for (std::uint64_t i = 1; i <= 6; ++i) {
        event(EventType::alloc, i << 20, 1000 * i, 0, i == 6 ? 3 : 0);
    }
    for (std::uint64_t i = 1; i <= 4; ++i) {
        event(EventType::label, i << 20, 0, i < 3 ? 1 : 2, 0);
    }
    event(EventType::label, 6 << 20, 0, 1, 0);
    event(EventType::free_requested, 4 << 20, 0, 0, 0);
    aggregator.on(OomEvent{.requested = 1});
    event(EventType::free_requested, 6 << 20, 0, 0, 0);
    REQUIRE(aggregator.ooms().size() == 1);
    const std::vector<SiteLabel>& then = aggregator.ooms()[0].labels;
    REQUIRE(then.size() == 3);
    CHECK((then[0].site == 0 && then[0].name == 1 && then[0].live_bytes == 3000));  // 1 and 2
    CHECK((then[1].site == 0 && then[1].name == 2 && then[1].live_bytes == 3000));  // 3
    CHECK((then[2].site == 1 && then[2].name == 1 && then[2].live_count == 1));
    const std::vector<SiteLabel> now = aggregator.labels().by_site();
    REQUIRE(now.size() == 3);
    CHECK((now[1].name == 2 && now[1].count == 2 && now[1].live_count == 1));
    CHECK((now[2].count == 1 && now[2].live_count == 0 && now[2].live_bytes == 0));
    // The latest name counts.
    event(EventType::label, 1 << 20, 0, 2, 0);
    CHECK(aggregator.labels().by_site()[0].name == 2);
    CHECK(aggregator.labels().by_site()[0].live_bytes == 4000);
}

TEST_CASE("a name has the detail that all its allocations have, each allocation its own") {
    LabelStats labels;
    labels.label(1 << 20, 1, 1000, 0, 7);
    labels.label(2 << 20, 1, 1000, 1, 7);
    labels.label(3 << 20, 2, 1000, 1, 8);
    CHECK(labels.totals()[0].detail == 7);
    labels.label(4 << 20, 1, 1000, 1, 8);
    labels.label(5 << 20, 1, 1000, 1, 7);
    CHECK(labels.totals()[0].detail == 0);
    CHECK(labels.totals()[1].detail == 8);
    CHECK(labels.by_site()[0].detail == 7);  // site 0
    CHECK(labels.by_site()[1].detail == 0);
    CHECK(labels.detail_of(2 << 20) == 7);
    CHECK(labels.detail_of(4 << 20) == 8);
    labels.label(4 << 20, 2, 1000, 1);  // the latest counts
    CHECK(labels.detail_of(4 << 20) == 0);
    CHECK(labels.detail_of(6 << 20) == 0);
}

TEST_CASE("each parameter of a large model has its name") {
    LabelStats labels;
    constexpr std::uint32_t names = 4 * 5000;  // with gradients and two states of the optimizer
    for (std::uint32_t i = 1; i <= names; ++i) {
        labels.label(std::uint64_t{i} << 20, i, 1000 + i, i % 2, 1 + i % 3);
    }
    REQUIRE(labels.totals().size() == names);
    CHECK(labels.totals().back().name == names);
    CHECK(labels.totals().back().live_bytes == 1000 + names);
    CHECK(labels.name_of(std::uint64_t{names} << 20) == names);
    const std::vector<SiteLabel> told = labels.by_site();
    REQUIRE(told.size() == 2 * LabelStats::max_of_site);
    CHECK(told[0].name == names);  // the largest of site 0
    const SiteLabel& others = told[LabelStats::max_of_site - 1];
    CHECK(others.site == 0);
    CHECK(others.name == 0);
    CHECK(others.detail == 0);
    CHECK(others.count == names / 2 - (LabelStats::max_of_site - 1));
    CHECK(others.live_count == others.count);
    std::uint64_t bytes = 0;
    for (const SiteLabel& label : told) {
        bytes += label.live_bytes;
    }
    CHECK(bytes == std::uint64_t{names} * 1000 + std::uint64_t{names} * (names + 1) / 2);
}

TEST_CASE("names beyond the bound share a row") {
    LabelStats labels;
    constexpr std::uint32_t names = LabelStats::max_names + 10;
    for (std::uint32_t i = 1; i <= names; ++i) {
        labels.label(std::uint64_t{i} << 20, i, 10, 0);
    }
    REQUIRE(labels.totals().size() == LabelStats::max_names);
    CHECK(labels.totals().back().name == 0);
    CHECK(labels.totals().back().live_count == 11);
}

TEST_CASE("more pairs of site and name than are kept leave the names' own figures right") {
    LabelStats labels;
    constexpr std::uint32_t sites = LabelStats::max_site_labels + 10;
    for (std::uint32_t i = 0; i < sites; ++i) {
        labels.label(i + 1, 1, 10, i);
    }
    CHECK(labels.by_site().size() == LabelStats::max_site_labels);
    CHECK(labels.totals()[0].live_bytes == std::uint64_t{10} * sites);
    for (std::uint32_t i = 0; i < sites; ++i) {
        labels.ended(i + 1, 10);
    }
    CHECK(labels.totals()[0].live_bytes == 0);
    CHECK(labels.by_site().back().live_bytes == 0);
}

TEST_CASE("marks and scopes that repeat delimit steps") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "step"});
    aggregator.on(StringDef{.id = 2, .text = "end of step"});
    const auto event = [&](EventType type, std::uint64_t address, std::uint64_t bytes,
                           std::uint32_t name) {
        aggregator.on(Event{
            .type = type, .name = name, .address = address, .requested = bytes, .size = bytes});
    };
    for (std::uint64_t i = 1; i <= 30; ++i) {
        event(EventType::scope_begin, 0, 0, 1);
        event(EventType::alloc, 1, 5 * mib, 0);
        event(EventType::alloc, i << 20, 512, 0);
        event(EventType::free_requested, 1, 0, 0);
        event(EventType::scope_end, 0, 0, 0);
        event(EventType::mark, 0, 0, 2);
    }
    const std::vector<StepTotals> steps = aggregator.steps();
    REQUIRE(steps.size() == 2);
    for (const StepTotals& each : steps) {
        CHECK(each.steps == 30);
        CHECK(each.verdict == Verdict::growing);
        REQUIRE(each.growing.size() == 1);
        CHECK(each.growing[0].trend.bytes_per_step == Approx(512));
    }
    CHECK(steps[0].kind == StepKind::scope);
    CHECK(aggregator.scopes().path_text(steps[0].path) == "step");
    CHECK(steps[1].kind == StepKind::mark);
    const auto rows = aggregator.scopes().totals(0);
    REQUIRE(rows.size() == 1);
    CHECK(rows[0].escaped_bytes == 30 * 512);
    CHECK(rows[0].peak_growth_bytes == 5 * mib + 512);
    CHECK(rows[0].peak_bytes == 5 * mib + 30 * 512);
    CHECK(aggregator.mark_count() == 30);  // scopes are no marks
}

TEST_CASE("what a library names for each of its calls is no step") {
    const std::string name = GENERATE("NCCL:ncclAllReduce", "TSL:XlaModule:#hlo_module=jit_step#");
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = name});
    aggregator.on(StringDef{.id = 2, .text = "step"});
    const auto scope = [&](EventType type, std::uint32_t name) {
        aggregator.on(Event{.type = type, .name = name});
    };
    for (int i = 0; i < 30; ++i) {
        scope(EventType::scope_begin, 1);
        scope(EventType::scope_end, 0);
    }
    CHECK(aggregator.steps().empty());
    for (int i = 0; i < 10; ++i) {
        scope(EventType::scope_begin, 2);
        scope(EventType::scope_begin, 1);
        scope(EventType::scope_end, 0);
        scope(EventType::scope_end, 0);
    }
    const std::vector<StepTotals> steps = aggregator.steps();
    REQUIRE(steps.size() == 1);
    CHECK(aggregator.scopes().path_text(steps[0].path) == "step");
    CHECK(steps[0].steps == 10);
    CHECK(aggregator.scopes().totals(0).size() == 3);
}

TEST_CASE("the outermost loop is the step, whatever loops within it, once it has a verdict") {
    for (const std::uint64_t rounds : {3, 30}) {
        CAPTURE(rounds);
        Aggregator aggregator;
        define_device(aggregator);
        const std::vector<std::string> names = {"step",     "forward",  "backward",
                                                "exchange", "optimize", "copy"};
        for (std::uint32_t i = 0; i < names.size(); ++i) {
            aggregator.on(StringDef{.id = i + 1, .text = names[i]});
        }
        const auto event = [&](EventType type, std::uint64_t address, std::uint32_t name) {
            aggregator.on(
                Event{.type = type, .name = name, .address = address, .requested = 0, .size = 512});
        };
        std::uint64_t address = 0;
        for (std::uint64_t i = 0; i < rounds; ++i) {
            event(EventType::scope_begin, 0, 1);
            // Five inner loops, more than are followed by site.
            for (std::uint32_t inner = 2; inner <= names.size(); ++inner) {
                for (int layer = 0; layer < 12; ++layer) {
                    event(EventType::scope_begin, 0, inner);
                    event(EventType::alloc, address += 512, 0);
                    event(EventType::scope_end, 0, 0);
                }
            }
            event(EventType::scope_end, 0, 0);
        }
        const std::vector<StepTotals> steps = aggregator.steps();
        if (rounds < StepStats::min_steps) {
            CHECK(steps.size() == names.size());
            continue;
        }
        REQUIRE(steps.size() == 1);
        CHECK(aggregator.scopes().path_text(steps[0].path) == "step");
        CHECK(steps[0].steps == rounds);
        CHECK(steps[0].verdict == Verdict::growing);
        CHECK(steps[0].by_site);
        REQUIRE(steps[0].growing.size() == 1);
        CHECK(steps[0].growing[0].trend.bytes_per_step == Approx(60 * 512));
    }
}

TEST_CASE("a thread's latest name counts; no more are kept than have their place") {
    Aggregator aggregator;
    aggregator.on(StringDef{.id = 1, .text = "loader"});
    aggregator.on(StringDef{.id = 2, .text = "writer"});
    aggregator.on(ThreadInfo{.thread = 5, .name = 1});
    aggregator.on(ThreadInfo{.thread = 6, .name = 1});
    aggregator.on(ThreadInfo{.thread = 5, .name = 2});
    using Names = std::map<std::uint32_t, std::uint32_t>;
    CHECK(aggregator.thread_names() == Names{{5, 2}, {6, 1}});
    aggregator.on(ThreadInfo{.thread = 6, .name = 0});
    CHECK(aggregator.thread_names() == Names{{5, 2}});
    for (std::uint32_t thread = 100; thread < 100 + 2 * Aggregator::max_thread_names; ++thread) {
        aggregator.on(ThreadInfo{.thread = thread, .name = 1});
    }
    CHECK(aggregator.thread_names().size() == Aggregator::max_thread_names);
    aggregator.on(ThreadInfo{.thread = 5, .name = 1});
    CHECK(aggregator.thread_names().at(5) == 1);
}

TEST_CASE("missed reasons add up") {
    Aggregator aggregator;
    aggregator.on(StringDef{.id = 1, .text = "a"});
    aggregator.on(StringDef{.id = 2, .text = "b"});
    aggregator.on(Missed{.time_ns = 5, .reason = 2, .count = 2, .bytes = 10});
    aggregator.on(Missed{.time_ns = 6, .reason = 1, .count = 1, .bytes = 1});
    aggregator.on(Missed{.time_ns = 7, .reason = 2, .count = 3, .bytes = 20});
    REQUIRE(aggregator.missed().size() == 2);
    CHECK(aggregator.missed()[0].reason == 2);
    CHECK(aggregator.missed()[0].count == 5);
    CHECK(aggregator.missed()[0].bytes == 30);
    CHECK(aggregator.missed()[0].first_time_ns == 5);
    CHECK(aggregator.missed()[0].figures == Figures::unknown);
}

TEST_CASE("figures are complete only where each that was missed says so") {
    Aggregator aggregator;
    aggregator.on(StringDef{.id = 1, .text = "a"});
    const auto after = [&](Figures figures) {
        aggregator.on(Missed{.time_ns = 5, .reason = 1, .figures = figures});
        return aggregator.missed()[0].figures;
    };
    CHECK(after(Figures::complete) == Figures::complete);
    CHECK(after(Figures::unknown) == Figures::unknown);
    CHECK(after(Figures::complete) == Figures::unknown);
    CHECK(after(Figures::at_least) == Figures::at_least);
    CHECK(after(Figures::complete) == Figures::at_least);
}

TEST_CASE("allocations whose sum does not fit into 64 bits are left out") {
    Aggregator aggregator;
    define_device(aggregator);
    Event event;
    for (std::uint64_t i = 1; i <= 3; ++i) {
        event.time_ns = i;
        event.address = i << 20;
        event.requested = event.size = std::uint64_t{1} << 63;
        aggregator.on(event);
        CHECK(aggregator.integrity().overflowed == (i >= 2));
    }
    CHECK(aggregator.sites().at(0).bytes == std::uint64_t{1} << 63);
    CHECK(aggregator.sites().at(0).live_count == 1);
    event.address = 9 << 20;
    event.requested = event.size = 512;
    aggregator.on(event);
    CHECK(aggregator.sites().at(0).live_bytes == (std::uint64_t{1} << 63) + 512);
}

TEST_CASE("events with an earlier time than the one in front of them are counted") {
    Aggregator aggregator;
    define_device(aggregator);
    Event event;
    for (const std::uint64_t time_ns : {10, 20, 15, 15, 20, 30}) {
        event.time_ns = time_ns;
        event.address += 1 << 20;
        event.requested = event.size = 512;
        aggregator.on(event);
    }
    CHECK(aggregator.integrity().earlier_times == 2);
    CHECK(aggregator.duration_ns() == 30);
    event.type = EventType::free_requested;
    event.time_ns = 25;
    aggregator.on_freed(event);  // two events
    CHECK(aggregator.integrity().earlier_times == 4);
}

TEST_CASE("the timeline stays bounded over any time, and its peaks exact") {
    Aggregator aggregator;
    define_device(aggregator);
    std::uint64_t time = 0;
    std::uint64_t highest = 0;
    for (std::uint64_t i = 1; i <= 20000; ++i) {
        time += i * i;  // from nanoseconds to half an hour
        Event event;
        event.time_ns = time;
        event.address = i;
        event.requested = event.size = 1 + i * 7919 % 1000003;
        highest = std::max(highest, event.size);
        aggregator.on(event);
        event.type = EventType::free_requested;
        aggregator.on(event);
    }
    const Timeline& timeline = aggregator.devices()[0]->timeline;
    CHECK(timeline.buckets().size() <= Timeline::max_buckets);
    CHECK(timeline.buckets().size() > Timeline::max_buckets / 4);
    std::uint64_t seen = 0;
    for (const Timeline::Bucket& bucket : timeline.buckets()) {
        seen = std::max(seen, bucket.used ? bucket.max[1] : 0);
    }
    CHECK(seen == highest);
    CHECK(seen == aggregator.devices()[0]->curve(CurveName::allocated).peak);
    // The end of time itself.
    aggregator.on(Event{.time_ns = ~std::uint64_t{0}, .address = 1, .requested = 1, .size = 1});
    CHECK(timeline.buckets().size() <= Timeline::max_buckets);
}

TEST_CASE("a block whose segment was unmapped in part has no layout any more") {
    PoolLayout pool;
    pool.add_segment(8 * mib, 8 * mib, 1, true);
    const bool small = pool.add_block(9 * mib, 5 * mib).small;
    CHECK(pool.unmap(12 * mib, 2 * mib) == 2 * mib);
    CHECK(pool.gap_bytes() == 6 * mib);
    CHECK(pool.largest_gap() == 4 * mib);
    CHECK(pool.stats.inactive_split_bytes.all.current == 0);
    CHECK(pool.stats.active_bytes.all.current == 5 * mib);
    pool.remove_block(9 * mib, 5 * mib, small);
    CHECK(pool.gap_bytes() == 6 * mib);
    CHECK(pool.stats.active_bytes.all.current == 0);
}

TEST_CASE("mapped segments grow, join, split and shrink with a consistent layout") {
    // Against a bitmap of pages.
    constexpr std::uint64_t pages = 64;
    constexpr std::uint64_t page = 2 * mib;
    for (std::uint64_t seed = 1; seed <= 30; ++seed) {
        CAPTURE(seed);
        Random random(seed);
        PoolLayout pool;
        std::vector<bool> mapped(pages, false);
        std::map<std::uint64_t, std::pair<std::uint64_t, bool>> blocks;  // pages; small
        const auto used = [&](std::uint64_t at) {
            for (const auto& [start, block] : blocks) {
                if (at >= start && at < start + block.first) {
                    return true;
                }
            }
            return false;
        };
        for (int step = 0; step < 400; ++step) {
            const std::uint64_t from = random.below(pages);
            const std::uint64_t count = 1 + random.below(std::min<std::uint64_t>(8, pages - from));
            bool all_mapped = true;
            bool none_mapped = true;
            bool none_used = true;
            for (std::uint64_t i = from; i < from + count; ++i) {
                all_mapped = all_mapped && mapped[i];
                none_mapped = none_mapped && !mapped[i];
                none_used = none_used && !used(i);
            }
            const std::uint64_t address = (from + 1) * page;
            if (none_mapped) {
                CHECK(pool.add_segment(address, count * page, 1, true) == count * page);
                std::fill_n(mapped.begin() + static_cast<long>(from), count, true);
            } else if (all_mapped && none_used && random.one_in(2)) {
                blocks[from] = {count, pool.add_block(address, count * page).small};
            } else if (none_used && random.one_in(2)) {
                std::uint64_t expected = 0;
                for (std::uint64_t i = from; i < from + count; ++i) {
                    expected += mapped[i] ? page : 0;
                    mapped[i] = false;
                }
                CHECK(pool.unmap(address, count * page) == expected);
            } else if (!blocks.empty()) {
                auto at = blocks.begin();
                std::advance(at, static_cast<long>(random.below(blocks.size())));
                pool.remove_block((at->first + 1) * page, at->second.first * page,
                                  at->second.second);
                blocks.erase(at);
            }
            // Runs of mapped pages are the segments; runs of unused ones in them the gaps.
            std::uint64_t segments = 0;
            std::uint64_t gap_bytes = 0;
            std::uint64_t largest = 0;
            std::uint64_t split = 0;
            std::uint64_t split_bytes = 0;
            for (std::uint64_t i = 0; i < pages;) {
                if (!mapped[i]) {
                    ++i;
                    continue;
                }
                ++segments;
                std::uint64_t gaps = 0;
                std::uint64_t gap = 0;
                std::uint64_t free = 0;
                bool any_used = false;
                for (; i < pages && mapped[i]; ++i) {
                    if (used(i)) {
                        any_used = true;
                        gap = 0;
                        continue;
                    }
                    gaps += gap == 0 ? 1 : 0;
                    gap += page;
                    free += page;
                    largest = std::max(largest, gap);
                }
                gap_bytes += free;
                split += any_used ? gaps : 0;
                split_bytes += any_used ? free : 0;
            }
            REQUIRE(pool.context_segments(1).size() == segments);
            REQUIRE(pool.gap_bytes() == gap_bytes);
            if (random.one_in(3)) {  // what it remembers in between must not grow old
                REQUIRE(pool.largest_gap() == largest);
            }
            REQUIRE(pool.stats.inactive_split.all.current == split);
            REQUIRE(pool.stats.inactive_split_bytes.all.current == split_bytes);
            const auto total = static_cast<std::uint64_t>(
                std::count(mapped.begin(), mapped.end(), true) * static_cast<long>(page));
            REQUIRE(pool.stats.reserved_bytes.all.current == total);
            REQUIRE(pool.stats.reserved_bytes.small_pool.current +
                        pool.stats.reserved_bytes.large_pool.current ==
                    total);
        }
    }
}

TEST_CASE("wild records harm nothing") {
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        Aggregator aggregator;
        feed(WildRecords::make(seed, 5000, true), aggregator);
        CHECK_FALSE(aggregator.integrity().incomplete);
        for (const auto& device : aggregator.devices()) {
            if (device != nullptr) {
                CHECK(device->timeline.buckets().size() <= Timeline::max_buckets);
            }
        }
    }
}

TEST_CASE("lifetimes: a count has no end that a program reaches") {
    constexpr std::uint64_t full = 0xffffffff;
    Lifetimes lifetimes;
    lifetimes.add(5, full);
    lifetimes.add(6, 2 * full);
    lifetimes.add(7, full - 1);
    CHECK(lifetimes.median() == 6);
    lifetimes.add(7, 4 * full);
    CHECK(lifetimes.median() == 7);
    lifetimes.add(5, 3 * full);
    CHECK(lifetimes.median() == 6);
    lifetimes.add(1);  // the buckets move
    lifetimes.add(5, 3);
    CHECK(lifetimes.median() == 6);
    lifetimes.add(1, 3 * full);
    CHECK(lifetimes.median() == 5);
    CHECK(lifetimes.min() == 1);
    CHECK(lifetimes.max() == 7);
}

TEST_CASE("lifetimes: the median is within a sixteenth for any numbers") {
    Random random(4);
    for (int round = 0; round < 300; ++round) {
        Lifetimes lifetimes;
        CHECK(lifetimes.median() == 0);
        std::vector<std::uint64_t> all;
        const std::uint64_t count = 1 + random.below(200);
        const std::uint64_t spread = 1 + random.below(63);
        for (std::uint64_t i = 0; i < count; ++i) {
            all.push_back(random.any() >> random.below(spread));
            lifetimes.add(all.back());
        }
        std::sort(all.begin(), all.end());
        CHECK(lifetimes.min() == all.front());
        CHECK(lifetimes.max() == all.back());
        const double median = static_cast<double>(all[(all.size() - 1) / 2]);
        CHECK(static_cast<double>(lifetimes.median()) >= median * (1 - 0.0625));
        CHECK(static_cast<double>(lifetimes.median()) <= median * (1 + 0.0625));
    }
}

TEST_CASE("kernels at the peak: what ran from the moment of the peak until the memory fell") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "gemm"});
    aggregator.on(StringDef{.id = 2, .text = "relu"});
    constexpr std::uint64_t ms = 1'000'000;
    const auto change = [&](EventType type, std::uint64_t address, std::uint64_t time) {
        Event event = pool_event(type, address, 1000, time);
        event.origin = Origin::driver;
        aggregator.on(event);
    };
    const auto kernel = [&](std::uint32_t name, std::uint64_t start, std::uint64_t end) {
        aggregator.on(Work{.name = name, .start_ns = start, .end_ns = end});
    };
    change(EventType::alloc, 1, 1 * ms);
    kernel(1, 1 * ms, 2 * ms);  // at the first peak, which is not the last
    REQUIRE(aggregator.kernels_at_peak(0).size() == 1);
    change(EventType::alloc, 2, 10 * ms);
    CHECK(aggregator.kernels_at_peak(0).empty());
    kernel(1, 8 * ms, 9 * ms);    // over before it
    kernel(1, 9 * ms, 11 * ms);   // half of it inside
    kernel(2, 12 * ms, 13 * ms);  // inside, while the peak holds
    change(EventType::free_requested, 2, 20 * ms);
    kernel(2, 19 * ms, 22 * ms);  // recorded late; a third of it inside
    kernel(1, 21 * ms, 23 * ms);  // after the fall
    aggregator.on(Work{.kind = WorkKind::copy, .start_ns = 10 * ms, .end_ns = 12 * ms, .bytes = 5});
    const auto kernels = aggregator.kernels_at_peak(0);
    REQUIRE(kernels.size() == 2);
    CHECK(kernels[0].name == 2);
    CHECK(kernels[0].count == 2);
    CHECK(kernels[0].busy_ns == 2 * ms);
    CHECK(kernels[1].name == 1);
    CHECK(kernels[1].count == 1);
    CHECK(kernels[1].busy_ns == 1 * ms);
    const DeviceTotals& device = *aggregator.devices()[0];
    CHECK(device.work[0].count == 6);
    CHECK(device.work[1].count == 1);
    CHECK(device.work[1].busy_ns == 2 * ms);
    CHECK(device.work[1].bytes == 5);
}

TEST_CASE("a peak that falls at once still lasts a millisecond for kernels") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "gemm"});
    Event event = pool_event(EventType::alloc, 1, 1000, 5000);
    event.origin = Origin::driver;
    aggregator.on(event);
    event.type = EventType::free_requested;
    event.time_ns = 6000;
    aggregator.on(event);
    aggregator.on(Work{.name = 1, .start_ns = 900'000, .end_ns = 1'000'000});
    aggregator.on(Work{.name = 1, .start_ns = 1'005'000, .end_ns = 1'100'000});
    const auto kernels = aggregator.kernels_at_peak(0);
    REQUIRE(kernels.size() == 1);
    CHECK(kernels[0].count == 1);
    CHECK(kernels[0].busy_ns == 100'000);
}

TEST_CASE("what bypassed memlab is added up by who did it") {
    Aggregator aggregator;
    define_device(aggregator);
    aggregator.on(StringDef{.id = 1, .text = "cudaMalloc"});
    CHECK(!aggregator.coverage());
    aggregator.on(Bypass{.time_ns = 3, .api = 1, .address = 16, .bytes = 100});
    aggregator.on(Bypass{.time_ns = 4, .address = 32, .bytes = 10});
    aggregator.on(Bypass{.time_ns = 5, .api = 1, .address = 48, .bytes = 200});
    aggregator.on(Coverage{.time_ns = 6, .audited = false});
    aggregator.on(Coverage{.time_ns = 7, .audited = true, .cupti = 1, .count = 9, .bytes = 900});
    REQUIRE(aggregator.bypasses().size() == 2);
    CHECK(aggregator.bypasses()[0].count == 2);
    CHECK(aggregator.bypasses()[0].bytes == 300);
    CHECK(aggregator.bypasses()[0].first_time_ns == 3);
    CHECK(aggregator.bypassed_count() == 3);
    CHECK(aggregator.bypassed_bytes() == 310);
    REQUIRE(aggregator.coverage());
    CHECK(aggregator.coverage()->audited);
    CHECK(aggregator.coverage()->count == 9);
}

TEST_CASE("a free and its completion are two events out of order, together or apart") {
    Aggregator together;
    Aggregator apart;
    for (Aggregator* const each : {&together, &apart}) {
        each->on(DeviceInfo{.index = 0});
        each->on(Event{.type = EventType::alloc, .time_ns = 10, .address = 512, .size = 512});
    }
    const Event freed{.type = EventType::free_requested, .time_ns = 5, .address = 512};
    together.on_freed(freed);
    apart.on(freed);
    apart.on(completed_at_once(freed));
    CHECK(together.integrity().earlier_times == 2);
    CHECK(apart.integrity().earlier_times == 2);
}
