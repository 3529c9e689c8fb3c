// The aggregate of a running program: the same as if every record were added up at once.
#include "profiler/batched_aggregator.hpp"

#include <mutex>
#include <random>
#include <vector>

#include "tests/catch.hpp"

using memlab::profiler::BatchedAggregator;
using memlab::profiler::EventBatch;
using memlab::profiler::EventTemplates;
using namespace memlab;

namespace {

void define_all(auto&& define) {
    define(trace::DeviceInfo{});
    trace::ContextInfo context;
    context.id = 1;
    define(context);
}

/// Both see the same records; the batches in the order of `mutex`.
struct Both {
    Both() {
        define_all([&](const auto& record) {
            batched.on(record);
            plain.on(record);
        });
    }

    void add(const auto& record) {
        std::unique_lock order(mutex);
        batched.add(record, order);
        plain.on(record);
    }
    void add_freed(const trace::Event& free_requested) {
        std::unique_lock order(mutex);
        batched.add_freed(free_requested, order);
        plain.on(free_requested);
        plain.on(trace::completed_at_once(free_requested));
    }

    std::mutex mutex;
    BatchedAggregator batched;
    trace::Aggregator plain;
};

trace::Event event_at(trace::EventType type, std::uint64_t address, std::uint64_t time_ns) {
    trace::Event event;
    event.type = type;
    event.origin = trace::Origin::pool;
    event.context = 1;
    event.thread = 1;
    event.address = address;
    event.requested = 100 + address % 7;
    event.size = 512;
    event.time_ns = time_ns;
    return event;
}

void check_same(const trace::Aggregator& batched, const trace::Aggregator& plain) {
    CHECK(batched.event_count() == plain.event_count());
    CHECK(batched.live().size() == plain.live().size());
    CHECK(batched.duration_ns() == plain.duration_ns());
    CHECK(batched.integrity().unmatched_frees == plain.integrity().unmatched_frees);
    const trace::DeviceTotals& mine = *batched.devices()[0];
    const trace::DeviceTotals& other = *plain.devices()[0];
    for (std::size_t curve = 0; curve < trace::curve_count; ++curve) {
        CHECK(mine.curves[curve].current == other.curves[curve].current);
        CHECK(mine.curves[curve].peak == other.curves[curve].peak);
        CHECK(mine.curves[curve].peak_time_ns == other.curves[curve].peak_time_ns);
    }
    REQUIRE(batched.sites().size() == plain.sites().size());
    CHECK(batched.sites()[0].temporaries == plain.sites()[0].temporaries);
    REQUIRE(mine.timeline.buckets().size() == other.timeline.buckets().size());
    for (std::size_t i = 0; i < mine.timeline.buckets().size(); ++i) {
        CHECK(mine.timeline.buckets()[i].max == other.timeline.buckets()[i].max);
        CHECK(mine.timeline.buckets()[i].last == other.timeline.buckets()[i].last);
    }
}

}  // namespace

TEST_CASE("batches add up to what single records do, wherever a batch ends and whoever looks") {
    std::mt19937 random(GENERATE(1U, 2U, 3U));
    Both both;
    std::uint64_t time_ns = 0;
    std::vector<std::uint64_t> live;
    std::size_t records = 0;
    while (records < 5 * BatchedAggregator::batch_size) {
        time_ns += random() % 1000;
        const unsigned what = random() % 64;
        if (what == 0) {
            both.add(trace::DeviceSample{
                .time_ns = time_ns, .device = 0, .used = random() % 4096, .total = 8192});
            ++records;
        } else if (what < 34 || live.empty()) {
            live.push_back((records + 1) << 12);
            trace::Event event = event_at(trace::EventType::alloc, live.back(), time_ns);
            event.thread = random() % 16 == 0 ? 2 : 1;
            event.correlation = random() % 32 == 0 ? 5 : 0;
            event.requested += random() % 64 == 0 ? std::uint64_t{1} << 32 : 0;
            event.origin = random() % 64 == 0 ? trace::Origin::driver : trace::Origin::pool;
            both.add(event);
            ++records;
        } else if (what <
                   36) {  // of nothing, of what is pending, of another device, of the driver's
            trace::Event event = event_at(trace::EventType::free_requested, live.back(), time_ns);
            event.origin = random() % 2 == 0 ? trace::Origin::pool : trace::Origin::driver;
            event.device = random() % 4 == 0 ? 7 : 0;
            event.stack = random() % 4 == 0 ? 99 : 0;
            both.add(event);
            event.address += random() % 2 == 0 ? 0 : 512;
            both.add_freed(event);
            records += 2;
        } else {
            const std::size_t chosen = random() % live.size();
            const std::uint64_t address = live[chosen];
            live[chosen] = live.back();
            live.pop_back();
            both.add_freed(event_at(trace::EventType::free_requested, address, time_ns));
            ++records;
        }
        if (random() % 10'000 == 0) {
            const std::lock_guard order(both.mutex);
            check_same(both.batched.all(), both.plain);
        }
    }
    const std::lock_guard order(both.mutex);
    check_same(both.batched.all(), both.plain);
}

TEST_CASE("packed records come out as they went in") {
    struct Collected {
        void on(const trace::Event& event) { events.push_back(event); }
        void on_freed(const trace::Event& event) { freed.push_back(event); }
        void on(const trace::DeviceSample& sample) { samples.push_back(sample); }
        std::vector<trace::Event> events;
        std::vector<trace::Event> freed;
        std::vector<trace::DeviceSample> samples;
    };
    constexpr std::size_t records = 100;
    std::mt19937_64 random(5);
    EventTemplates packed;
    EventTemplates taken;
    EventBatch batch(records);
    Collected in;
    Collected out;
    const auto rarely = [&random](auto usual) {
        using Value = decltype(usual);
        return random() % 20 == 0 ? static_cast<Value>(random() >> random() % 64) : usual;
    };
    for (int round = 0; round < 200; ++round) {
        while (!batch.full()) {
            if (random() % 50 == 0) {
                const trace::DeviceSample sample{.time_ns = random(),
                                                 .device = static_cast<std::uint32_t>(random()),
                                                 .used = random(),
                                                 .total = random()};
                batch.add(sample);
                in.samples.push_back(sample);
                continue;
            }
            trace::Event event;
            event.type = static_cast<trace::EventType>(random() % 3);
            event.kind = static_cast<trace::MemoryKind>(rarely(std::uint8_t{1}) % 3);
            event.origin = random() % 20 == 0 ? trace::Origin::driver : trace::Origin::pool;
            event.device = rarely(std::uint32_t{0});
            event.context = rarely(std::uint32_t{1});
            event.thread = rarely(std::uint32_t{77});
            event.api = rarely(std::uint32_t{3});
            event.stack = static_cast<std::uint32_t>(random());
            event.name = rarely(std::uint32_t{0});
            event.correlation = rarely(std::uint32_t{0});
            event.time_ns = rarely(random() >> 8);
            event.stream = rarely(std::uint64_t{0});
            event.address = random();
            event.requested = rarely(random() >> 32);
            event.size = rarely(random() >> 32);
            const bool freed = event.type == trace::EventType::free_requested;
            batch.add(event, freed ? EventTemplates::freed : EventTemplates::sort_of(event.type),
                      packed);
            (freed ? in.freed : in.events).push_back(event);
        }
        CHECK(batch.size() > records / 4);
        batch.take_all(out, taken);
        CHECK((batch.size() == 0 && !batch.full()));
        REQUIRE(out.events == in.events);
        REQUIRE(out.freed == in.freed);
        REQUIRE(out.samples == in.samples);
        in = out = {};
    }
}

TEST_CASE("what waits is added up early where the program has time, if there is enough of it") {
    Both both;
    std::unique_lock order(both.mutex);
    std::uint64_t address = 0;
    const auto add = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            address += 4096;
            const trace::Event event = event_at(trace::EventType::alloc, address, address);
            both.batched.prefetch(EventTemplates::sort_of(trace::EventType::alloc));
            both.batched.add(event, order);
            both.plain.on(event);
        }
    };
    const auto caught_up = [&] {
        const bool did = both.batched.catch_up(order);
        CHECK(order.owns_lock() != did);  // added up without it
        if (did) {
            order.lock();
        }
        return did;
    };
    constexpr std::size_t most = BatchedAggregator::worthwhile_else;
    constexpr std::size_t least = BatchedAggregator::worthwhile_in_spare_time;
    add(most - 1);
    CHECK_FALSE(caught_up());
    add(1);
    CHECK(caught_up());
    CHECK_FALSE(caught_up());  // nothing is left

    // Time to spare: half as many, down to the least.
    for (std::size_t worthwhile = most; worthwhile != least;) {
        both.batched.caught_up(true);
        worthwhile /= 2;
        add(worthwhile - 1);
        CHECK_FALSE(caught_up());
        add(1);
        CHECK(caught_up());
    }
    both.batched.caught_up(true);
    add(least - 1);
    CHECK_FALSE(caught_up());
    add(1);
    CHECK(caught_up());
    // None: twice as many, and no more than at the beginning.
    both.batched.caught_up(false);
    add(least);
    CHECK_FALSE(caught_up());
    add(least);
    CHECK(caught_up());
    for (std::size_t worthwhile = least; worthwhile != 2 * most; worthwhile *= 2) {
        both.batched.caught_up(false);
    }
    add(most - 1);
    CHECK_FALSE(caught_up());
    add(1);
    CHECK(caught_up());
    add(7);
    check_same(both.batched.all(), both.plain);
}

TEST_CASE("a record of another kind finds everything before it added up") {
    Both both;
    both.add(event_at(trace::EventType::alloc, 0x1000, 1));
    trace::OomEvent oom;
    oom.time_ns = 2;
    {
        const std::lock_guard order(both.mutex);
        both.batched.on(oom);
        CHECK(both.batched.all().ooms().at(0).holders.bytes == 512);
        CHECK(both.batched.is_described(0));
        CHECK_FALSE(both.batched.is_described(1));
    }
}
