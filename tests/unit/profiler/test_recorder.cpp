// The recorder: one order for all threads, definitions before uses, nothing after the end.
#include "profiler/recorder.hpp"

#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "profiler/clock.hpp"
#include "profiler/thread_id.hpp"
#include "tests/catch.hpp"
#include "trace/reading/log_reader.hpp"

using memlab::profiler::Recorder;
using memlab::profiler::StackLimits;
using namespace memlab;

namespace {

class Counter final : public trace::RecordSink {
  public:
    using trace::RecordSink::on;
    std::map<std::string, int> counts;
    std::vector<trace::Event> events;
    std::vector<trace::ThreadInfo> threads;
    std::vector<std::string> strings;
    trace::End end_record;

    void on(const trace::ProcessInfo& /*record*/) override { ++counts["process"]; }
    void on(const trace::OptionValue& /*record*/) override { ++counts["option"]; }
    void on(const trace::DeviceInfo& /*record*/) override { ++counts["device"]; }
    void on(const trace::ContextInfo& /*record*/) override { ++counts["context"]; }
    void on(const trace::ContextLost& /*record*/) override { ++counts["lost"]; }
    void on(const trace::ThreadInfo& record) override { threads.push_back(record); }
    void on(const trace::StringDef& record) override { strings.push_back(record.text); }
    void on(const trace::ModuleDef& /*record*/) override { ++counts["module"]; }
    void on(const trace::PythonFrameDef& /*record*/) override { ++counts["python frame"]; }
    void on(const trace::StackDef& /*record*/) override { ++counts["stack"]; }
    void on(const trace::Event& record) override { events.push_back(record); }
    void on(const trace::OomEvent& /*record*/) override { ++counts["oom"]; }
    void on(const trace::DeviceSample& /*record*/) override { ++counts["sample"]; }
    void on(const trace::Missed& /*record*/) override { ++counts["missed"]; }
    void on(const trace::Work& /*record*/) override { ++counts["work"]; }
    void on(const trace::Bypass& /*record*/) override { ++counts["bypass"]; }
    void on(const trace::Coverage& /*record*/) override { ++counts["coverage"]; }
    void on(const trace::LogStopped& /*record*/) override { ++counts["log_stopped"]; }
    void on(const trace::End& record) override {
        ++counts["end"];
        end_record = record;
    }
};

// A recorder with a log in a file that is gone at the end of the test.
class Recording {
  public:
    explicit Recording(std::uint64_t limit = 0) {
        char name[] = "/tmp/memlab-recorder-XXXXXX";
        close(mkstemp(name));
        unlink(name);
        path_ = name;
        trace::ProcessInfo process;
        process.start_monotonic_ns = profiler::monotonic_ns();
        auto created = trace::LogWriter::create(path_, limit);
        REQUIRE(created.writer);
        recorder = std::make_unique<Recorder>(std::move(created.writer), StackLimits{16}, process);
        trace::DeviceInfo device;
        recorder->record(device);
        trace::ContextInfo context;
        context.id = 1;
        recorder->record(context);
    }
    ~Recording() { unlink(path_.c_str()); }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    trace::LogReadResult read(trace::RecordSink& into) const {
        return trace::read_log(path_, into);
    }

    std::unique_ptr<Recorder> recorder;

  private:
    std::string path_;
};

trace::Event alloc_at(std::uint64_t address) {
    trace::Event event;
    event.context = 1;
    event.address = address;
    event.requested = 100;
    event.size = 512;
    return event;
}

}  // namespace

TEST_CASE("threads record in one order: times never decrease, nothing is lost") {
    Recording recording;
    constexpr int threads = 8;
    constexpr std::uint64_t each = 500;
    std::vector<std::thread> workers;
    workers.reserve(threads);
    for (int t = 0; t < threads; ++t) {
        workers.emplace_back([&recording, t] {
            for (std::uint64_t i = 0; i < each; ++i) {
                trace::Event event = alloc_at((static_cast<std::uint64_t>(t) * each + i + 1) << 12);
                event.stack = recording.recorder->capture_call_site();
                event.api = recording.recorder->string_id("cuMemAlloc_v2");
                recording.recorder->record(event);
            }
        });
    }
    for (std::thread& worker : workers) {
        worker.join();
    }
    recording.recorder->finish(trace::EndKind::exit);
    Counter counter;
    const trace::LogReadResult result = recording.read(counter);
    CHECK(result.status == trace::LogStatus::complete);
    REQUIRE(counter.events.size() == threads * each);
    std::map<std::uint32_t, std::uint64_t> per_thread;
    for (std::size_t i = 0; i < counter.events.size(); ++i) {
        if (i > 0) {
            CHECK(counter.events[i - 1].time_ns <= counter.events[i].time_ns);
        }
        ++per_thread[counter.events[i].thread];
    }
    CHECK(per_thread.size() == threads);
    for (const auto& [thread, count] : per_thread) {
        CHECK(count == each);
    }
    CHECK(counter.strings == std::vector<std::string>{"cuMemAlloc_v2"});
    CHECK(recording.recorder->aggregate().event_count() == threads * each);
}

TEST_CASE("one stack is one id, defined once with its modules") {
    Recording recording;
    std::uint32_t ids[3] = {};
    for (std::uint32_t& id : ids) {
        id = recording.recorder->capture_call_site();
    }
    REQUIRE(ids[0] != 0);
    CHECK(ids[0] == ids[1]);
    CHECK(ids[1] == ids[2]);
    recording.recorder->finish(trace::EndKind::exit);
    Counter counter;
    recording.read(counter);
    CHECK(counter.counts["stack"] == 1);
    CHECK(counter.counts["module"] >= 1);
}

TEST_CASE("after the end nothing is added, in the log or in the aggregate") {
    Recording recording;
    recording.recorder->record(alloc_at(0x1000));
    recording.recorder->finish(trace::EndKind::quick_exit);
    recording.recorder->record(alloc_at(0x2000));
    recording.recorder->report_missed("late", 1);
    recording.recorder->finish(trace::EndKind::exit);
    Counter counter;
    CHECK(recording.read(counter).status == trace::LogStatus::complete);
    CHECK(counter.events.size() == 1);
    CHECK(counter.counts["end"] == 1);
    CHECK(counter.end_record.kind == trace::EndKind::quick_exit);
    CHECK(counter.counts["missed"] == 0);
    CHECK(recording.recorder->aggregate().event_count() == 1);
}

TEST_CASE("a log that reached its limit: aggregation goes on, and both say why") {
    Recording recording(4096);
    for (std::uint64_t i = 1; i <= 5000; ++i) {
        recording.recorder->record(alloc_at(i << 12));
    }
    recording.recorder->finish(trace::EndKind::exit);
    CHECK(recording.recorder->aggregate().event_count() == 5000);
    CHECK_FALSE(recording.recorder->log_problem().empty());
    Counter counter;
    CHECK(recording.read(counter).status == trace::LogStatus::complete);
    CHECK(counter.events.size() < 5000);
    CHECK(counter.end_record.events_dropped == 5000 - counter.events.size());
    CHECK(counter.end_record.log_stopped_because == recording.recorder->log_problem());
}

TEST_CASE("who looks sees every event so far, in whatever batch it waits") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    for (std::uint64_t i = 1; i <= 300; ++i) {
        recorder.record(alloc_at(i << 12));
        recorder.with_aggregate([&](const trace::Aggregator& aggregate) {
            CHECK(aggregate.event_count() == i);
            CHECK(aggregate.live().size() == i);
        });
    }
    for (std::uint64_t i = 301; i <= 500; ++i) {
        recorder.record(alloc_at(i << 12));
    }
    CHECK(recorder.aggregate().event_count() == 500);
    recorder.finish(trace::EndKind::exit);
    CHECK(recorder.aggregate().event_count() == 500);
}

TEST_CASE("what threads record together adds up as the log does, while others look") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    constexpr int threads = 4;
    constexpr std::uint64_t rounds = 3000;
    std::atomic<bool> over{false};
    std::thread looker([&] {
        while (!over) {
            recorder.with_aggregate([threads](const trace::Aggregator& aggregate) {
                CHECK(aggregate.integrity().unmatched_frees == 0);
                CHECK(aggregate.live().size() <= threads);
            });
            recorder.record(trace::DeviceSample{.device = 0, .used = 1, .total = 2});
        }
    });
    std::vector<std::thread> workers;
    workers.reserve(threads);
    for (std::uint64_t t = 1; t <= threads; ++t) {
        workers.emplace_back([&recorder, t] {
            for (std::uint64_t i = 0; i < rounds; ++i) {
                trace::Event event = alloc_at(t << 20);
                recorder.record(event);
                event.type = trace::EventType::free_requested;
                recorder.record(event);
            }
        });
    }
    for (std::thread& worker : workers) {
        worker.join();
    }
    over = true;
    looker.join();
    recorder.finish(trace::EndKind::exit);

    trace::Aggregator again;
    REQUIRE(recording.read(again).status == trace::LogStatus::complete);
    const trace::Aggregator& online = recorder.aggregate();
    CHECK(online.event_count() == threads * rounds * 2);
    CHECK(again.event_count() == online.event_count());
    const trace::Curve& peak = online.devices()[0]->curve(trace::CurveName::allocated);
    const trace::Curve& same = again.devices()[0]->curve(trace::CurveName::allocated);
    CHECK(peak.current == 0);
    CHECK(peak.peak == same.peak);
    CHECK(peak.peak_time_ns == same.peak_time_ns);
    CHECK(online.sites().size() == again.sites().size());
    CHECK(online.sites()[0].temporaries == again.sites()[0].temporaries);
}

TEST_CASE("a thread's name comes before its first event; what it began with is none") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    const auto run = [](const auto& body) { std::thread(body).join(); };
    run([&] { recorder.record(alloc_at(0x1000)); });
    run([&] {
        pthread_setname_np(pthread_self(), "fifteen letters");
        recorder.record(alloc_at(0x2000));
        pthread_setname_np(pthread_self(), "later");
        recorder.record(alloc_at(0x3000));
        recorder.record(trace::OomEvent{});
        recorder.record(trace::OomEvent{});
    });
    run([&] {
        recorder.name_thread(profiler::thread_id(), "by the program");
        pthread_setname_np(pthread_self(), "by the kernel");
        recorder.record(alloc_at(0x4000));
        recorder.name_thread(profiler::thread_id(), "once more");
    });
    recorder.finish(trace::EndKind::exit);
    recorder.name_thread(1, "too late");

    Counter counter;
    CHECK(recording.read(counter).status == trace::LogStatus::complete);
    REQUIRE(counter.events.size() == 4);
    std::vector<std::pair<std::uint32_t, std::string>> names;
    names.reserve(counter.threads.size());
    for (const trace::ThreadInfo& thread : counter.threads) {
        names.emplace_back(thread.thread, counter.strings.at(thread.name - 1));
    }
    const std::uint32_t second = counter.events[1].thread;
    const std::uint32_t third = counter.events[3].thread;
    CHECK(names == std::vector<std::pair<std::uint32_t, std::string>>{
                       {second, "fifteen letters"},
                       {second, "later"},
                       {third, "by the program"},
                       {third, "once more"},
                   });
    const trace::Aggregator& aggregate = recorder.aggregate();
    CHECK(aggregate.string(aggregate.thread_names().at(second)) == "later");
    CHECK(aggregate.thread_names().count(counter.events[0].thread) == 0);
}

TEST_CASE("names of threads without end are recorded to a bound") {
    Recording recording;
    constexpr std::size_t bound = trace::Aggregator::max_thread_names;
    for (std::uint32_t i = 0; i < 3 * bound; ++i) {
        recording.recorder->name_thread(1 + i % 5, "worker " + std::to_string(i));
    }
    recording.recorder->name_thread(6, "after them");
    recording.recorder->finish(trace::EndKind::exit);
    Counter counter;
    recording.read(counter);
    CHECK(counter.strings.size() == bound);
    CHECK(counter.threads.size() == bound + 5);  // at last they have none
    CHECK(recording.recorder->aggregate().thread_names().empty());
}

TEST_CASE("suballocations are recorded whole, between whatever other events") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    trace::DeviceInfo device;
    device.index = 64;
    device.allocator = trace::DeviceInfo::pytorch;
    recorder.record(device);
    const std::uint32_t malloc = recorder.string_id("malloc");
    const std::uint32_t free = recorder.string_id("free");
    const std::uint32_t other = recorder.string_id("other");
    const std::uint32_t stack = recorder.capture_call_site();
    REQUIRE(stack != 0);
    std::vector<trace::Event> expected;
    const auto expect = [&](const trace::Event& event) {
        expected.push_back(event);
        if (event.type == trace::EventType::free_requested) {
            expected.push_back(trace::completed_at_once(event));
        }
    };
    recorder.prefetch_suballocation();
    for (std::uint64_t i = 1; i <= 30000; ++i) {
        profiler::Suballocation block{.device = 64,
                                      .context = 1,
                                      .api = malloc,
                                      .stack = i % 5 == 0 ? 0 : stack,
                                      .address = i << 9,
                                      .bytes = i % 900 * 512 + (i % 77 == 0 ? 8 : 0)};
        block.api = i % 1000 == 0 ? other : malloc;
        recorder.record_allocated(block);
        expect(block.event(trace::EventType::alloc));
        if (i % 100 == 0) {
            recorder.record(alloc_at(i << 40));
            expect(alloc_at(i << 40));
        }
        if (i % 3 != 0) {
            block.api = free;
            block.stack = 0;
            trace::Event event = block.event(trace::EventType::free_requested);
            if (i % 333 == 0) {
                event.name = other;  // a garbage collector's
                recorder.record_freed(event);
            } else {
                recorder.record_freed(block);
            }
            expect(event);
        }
    }
    CHECK(recorder.aggregate().event_count() == expected.size());
    recorder.finish(trace::EndKind::exit);
    const profiler::Suballocation late{
        .device = 64, .context = 1, .api = malloc, .stack = 0, .address = 512, .bytes = 512};
    recorder.record_allocated(late);
    Counter counter;
    CHECK(recording.read(counter).status == trace::LogStatus::complete);
    REQUIRE(counter.events.size() == expected.size());
    std::size_t wrong = 0;
    std::uint64_t now = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
        trace::Event event = counter.events[i];
        wrong += event.time_ns < now || event.thread != profiler::thread_id() ? 1 : 0;
        now = event.time_ns;
        event.time_ns = 0;
        event.thread = 0;
        wrong += event == expected[i] ? 0 : 1;
    }
    CHECK(wrong == 0);
    CHECK(recorder.aggregate().event_count() == expected.size());
}

TEST_CASE("a free that is complete at once is two events of one time, with nothing between") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    trace::Event event = alloc_at(0x1000);
    event.api = recorder.string_id("cuMemAlloc_v2");
    event.origin = trace::Origin::pool;
    recorder.record(event);
    event.type = trace::EventType::free_requested;
    event.stack = recorder.capture_call_site();
    event.correlation = 7;
    recorder.record_freed(event);
    recorder.finish(trace::EndKind::exit);
    recorder.record_freed(event);  // not any more
    Counter counter;
    CHECK(recording.read(counter).status == trace::LogStatus::complete);
    REQUIRE(counter.events.size() == 3);
    const trace::Event& requested = counter.events[1];
    const trace::Event& completed = counter.events[2];
    CHECK(requested.type == trace::EventType::free_requested);
    CHECK(requested.stack == event.stack);
    CHECK(requested.api == event.api);
    CHECK(requested.correlation == 7);
    CHECK(requested.thread != 0);
    trace::Event expected = requested;
    expected.type = trace::EventType::free_completed;
    expected.stack = expected.api = expected.correlation = 0;
    CHECK(completed == expected);
    CHECK(recorder.aggregate().live().size() == 0);
    CHECK(recorder.aggregate().event_count() == 3);
}

TEST_CASE(
    "what names the undefined is kept without it, what is undefined is left out; both count") {
    Recording recording;
    Recorder& recorder = *recording.recorder;
    trace::OomEvent oom;
    oom.requested = 5;
    oom.api = 77;
    oom.stack = 99;
    recorder.record(oom);
    trace::Bypass bypass;
    bypass.device = 1;  // not described
    recorder.record(bypass);
    trace::ContextInfo context;
    context.id = 9;  // not the next one
    recorder.record(context);
    context.id = 2;
    recorder.record(context);
    trace::Event event = alloc_at(0x1000);
    event.context = 9;
    recorder.record(event);
    recorder.record(event);  // twice, as the program would
    event = alloc_at(0x2000);
    event.device = 1;
    recorder.record(event);
    recorder.record_freed(event);
    recorder.record(trace::DeviceSample{.device = 1});
    const profiler::Suballocation block{
        .device = 0, .context = 1, .api = 0, .stack = 9, .address = 0x3000, .bytes = 512};
    recorder.record_allocated(block);
    recorder.record_freed(
        {.device = 1, .context = 1, .api = 0, .stack = 0, .address = 1, .bytes = 1});
    recorder.finish(trace::EndKind::exit);

    Counter counter;
    REQUIRE(recording.read(counter).status == trace::LogStatus::complete);
    REQUIRE(counter.events.size() == 3);
    for (const trace::Event& each : counter.events) {
        CHECK(each.stack == 0);
        CHECK(each.context == (each.address == 0x3000 ? 1 : 0));
    }
    CHECK(counter.counts["sample"] == 0);
    trace::Aggregator again;
    REQUIRE(recording.read(again).status == trace::LogStatus::complete);
    for (const trace::Aggregator* const seen : {&recorder.aggregate(), &std::as_const(again)}) {
        REQUIRE(seen->ooms().size() == 1);
        CHECK(seen->ooms()[0].event.requested == 5);
        CHECK(seen->ooms()[0].event.stack == 0);
        CHECK(seen->bypassed_count() == 0);
        CHECK(seen->contexts().size() == 2);
        REQUIRE(seen->missed().size() == 2);
        CHECK(seen->event_count() == 3);
        CHECK(seen->missed()[0].count == 4);
        CHECK(seen->string(seen->missed()[0].reason).find("shown without them") !=
              std::string::npos);
        CHECK(seen->missed()[1].count == 6);
        CHECK(seen->string(seen->missed()[1].reason).find("were lost") != std::string::npos);
    }
}

TEST_CASE("without a log only the aggregate is kept") {
    Recorder recorder(nullptr, StackLimits{0}, {});
    CHECK(recorder.capture_call_site() == 0);
    recorder.record(trace::DeviceInfo{});
    trace::ContextInfo context;
    context.id = 1;
    recorder.record(context);
    recorder.record(alloc_at(0x1000));
    recorder.finish(trace::EndKind::exit);
    CHECK(recorder.aggregate().event_count() == 1);
    CHECK(recorder.log_problem().empty());
}
