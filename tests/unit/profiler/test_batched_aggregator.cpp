// Batched aggregation gives the same result as aggregating every record at once.
#include "profiler/batched_aggregator.hpp"

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
        memlab::threads::UniqueLock order(mutex);
        batched.add(record, order);
        plain.on(record);
    }
    void add_freed(const trace::Event& free_requested) {
        memlab::threads::UniqueLock order(mutex);
        batched.add_freed(free_requested, order);
        plain.on(free_requested);
        plain.on(trace::completed_at_once(free_requested));
    }

    memlab::threads::Mutex mutex;
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

TEST_CASE("batches give the same aggregate as single records, wherever a batch ends") {
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
            const memlab::threads::LockGuard order(both.mutex);
            check_same(both.batched.flush(), both.plain);
        }
    }
    const memlab::threads::LockGuard order(both.mutex);
    check_same(both.batched.flush(), both.plain);
}

TEST_CASE("encode records come out as they went in") {
    struct Collected : trace::RecordSink {
        using RecordSink::on;
        void on(const trace::Event& event) override { events.push_back(event); }
        void on_freed(const trace::Event& event) override { freed.push_back(event); }
        void on(const trace::DeviceSample& sample) override { samples.push_back(sample); }
        void clear() {
            events.clear();
            freed.clear();
            samples.clear();
        }
        std::vector<trace::Event> events;
        std::vector<trace::Event> freed;
        std::vector<trace::DeviceSample> samples;
    };
    constexpr std::size_t records = 100;
    std::mt19937_64 random(5);
    EventTemplates encode;
    EventTemplates decode;
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
            event.nn_modules = static_cast<std::uint32_t>(random());
            event.name = rarely(std::uint32_t{0});
            event.correlation = rarely(std::uint32_t{0});
            event.time_ns = rarely(random() >> 8);
            event.stream = rarely(std::uint64_t{0});
            event.address = random();
            event.requested = rarely(random() >> 32);
            event.size = rarely(random() >> 32);
            const bool freed = event.type == trace::EventType::free_requested;
            batch.add(event, freed ? EventTemplates::freed_slot : EventTemplates::slot(event.type),
                      encode);
            (freed ? in.freed : in.events).push_back(event);
        }
        CHECK(batch.size() > records / 4);
        batch.drain(out, decode);
        CHECK((batch.size() == 0 && !batch.full()));
        REQUIRE(out.events == in.events);
        REQUIRE(out.freed == in.freed);
        REQUIRE(out.samples == in.samples);
        in.clear();
        out.clear();
    }
}

TEST_CASE("pending records are flushed early when the program is idle, if there are enough") {
    Both both;
    memlab::threads::UniqueLock order(both.mutex);
    std::uint64_t address = 0;
    const auto add = [&](std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) {
            address += 4096;
            const trace::Event event = event_at(trace::EventType::alloc, address, address);
            both.batched.prefetch(EventTemplates::slot(trace::EventType::alloc));
            both.batched.add(event, order);
            both.plain.on(event);
        }
    };
    const auto flushed = [&] {
        const bool did = both.batched.flush_if_idle(order);
        CHECK(order.owns_lock() != did);  // released during aggregation
        if (did) {
            order.lock();
        }
        return did;
    };
    constexpr std::size_t max_batch = BatchedAggregator::max_batch_when_idle;
    constexpr std::size_t min_batch = BatchedAggregator::min_batch_when_idle;
    add(max_batch - 1);
    CHECK_FALSE(flushed());
    add(1);
    CHECK(flushed());
    CHECK_FALSE(flushed());  // nothing is left

    // Idle: the threshold halves, down to the minimum.
    for (std::size_t threshold = max_batch; threshold != min_batch;) {
        both.batched.report_idle_wait(true);
        threshold /= 2;
        add(threshold - 1);
        CHECK_FALSE(flushed());
        add(1);
        CHECK(flushed());
    }
    both.batched.report_idle_wait(true);
    add(min_batch - 1);
    CHECK_FALSE(flushed());
    add(1);
    CHECK(flushed());
    // Not idle: the threshold doubles, up to the initial one.
    both.batched.report_idle_wait(false);
    add(min_batch);
    CHECK_FALSE(flushed());
    add(min_batch);
    CHECK(flushed());
    for (std::size_t threshold = min_batch; threshold != 2 * max_batch; threshold *= 2) {
        both.batched.report_idle_wait(false);
    }
    add(max_batch - 1);
    CHECK_FALSE(flushed());
    add(1);
    CHECK(flushed());
    add(7);
    check_same(both.batched.flush(), both.plain);
}

TEST_CASE("a record of another kind flushes the pending events first") {
    Both both;
    both.add(event_at(trace::EventType::alloc, 0x1000, 1));
    trace::OomEvent oom;
    oom.time_ns = 2;
    {
        const memlab::threads::LockGuard order(both.mutex);
        both.batched.on(oom);
        CHECK(both.batched.flush().ooms().at(0).holders.bytes == 512);
    }
}
