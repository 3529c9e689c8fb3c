// The recorder when the host has no memory left: it stops, and the program goes on.
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <new>
#include <string>

#include "profiler/clock.hpp"
#include "profiler/recorder.hpp"
#include "tests/catch.hpp"
#include "trace/reading/log_reader.hpp"

namespace {

/// How many more requests for memory succeed on this thread; below 0: all.
thread_local long requests_left = -1;

void* take(std::size_t size) {
    if (requests_left == 0) {
        return nullptr;
    }
    requests_left -= requests_left > 0 ? 1 : 0;
    return std::malloc(size);
}

}  // namespace

void* operator new(std::size_t size) {
    void* const memory = take(size);
    if (memory == nullptr) {
        throw std::bad_alloc();
    }
    return memory;
}
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return take(size);
}
void operator delete(void* memory) noexcept {
    std::free(memory);
}
void operator delete(void* memory, std::size_t) noexcept {
    std::free(memory);
}

using namespace memlab;

TEST_CASE(
    "out of host memory the recorder stops, whenever that happens; its log is good until then") {
    constexpr std::uint64_t events = 2000;
    std::uint64_t cut_short = 0;
    for (long requests = 0; requests < 200; ++requests) {
        CAPTURE(requests);
        const std::string path = "/tmp/memlab-recorder-memory-" + std::to_string(getpid());
        trace::ProcessInfo process;
        process.start_monotonic_ns = profiler::monotonic_ns();
        auto created = trace::LogWriter::create(path, 0);
        REQUIRE(created.writer);
        profiler::Recorder recorder(std::move(created.writer), profiler::StackLimits{16}, process);
        recorder.record(trace::DeviceInfo{});
        recorder.record(trace::ContextInfo{.id = 1});

        requests_left = requests;
        for (std::uint64_t i = 0; i < events; ++i) {
            trace::Event event;
            event.context = 1;
            event.api =
                recorder.string_id("api " + std::string(1, static_cast<char>('a' + i % 20)));
            event.stack = i % 16 == 0 ? recorder.capture_call_site() : 0;
            event.address = (i + 1) << 12;
            event.requested = event.size = 4096;
            recorder.record(event);
        }
        recorder.finish(trace::EndKind::exit);
        requests_left = -1;

        trace::Aggregator from_log;
        const trace::LogReadResult result = trace::read_log(path, from_log);
        CHECK((result.status == trace::LogStatus::complete ||
               result.status == trace::LogStatus::cut_off));
        CHECK(from_log.event_count() <= events);
        CHECK(recorder.aggregate().event_count() <= from_log.event_count());
        cut_short += from_log.event_count() < events ? 1 : 0;
        unlink(path.c_str());
    }
    CHECK(cut_short > 10);
    CHECK(cut_short < 200);
}
