// The recorder at the limit of its log: checkpoints are made by a thread while others record.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "model/json_writer.hpp"
#include "profiler/clock.hpp"
#include "profiler/recorder.hpp"
#include "tests/catch.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab;
using profiler::Recorder;

namespace {

constexpr std::uint64_t limit = std::uint64_t{8} << 20;

// With a sanitizer a checkpoint takes longer.
#if defined(__SANITIZE_THREAD__)
constexpr useconds_t pause_us = 4000;
#elif defined(__SANITIZE_ADDRESS__)
constexpr useconds_t pause_us = 600;
#else
constexpr useconds_t pause_us = 200;
#endif

class LogPath {
  public:
    LogPath() {
        char name[] = "/tmp/memlab-flight-XXXXXX";
        close(mkstemp(name));
        unlink(name);
        path_ = name;
    }
    LogPath(const LogPath&) = delete;
    LogPath& operator=(const LogPath&) = delete;
    ~LogPath() { unlink(path_.c_str()); }
    const std::string& operator*() const { return path_; }

  private:
    std::string path_;
};

std::unique_ptr<Recorder> start(const std::string& path) {
    trace::ProcessInfo process;
    process.start_monotonic_ns = profiler::monotonic_ns();
    auto created = trace::LogWriter::create(path, limit);
    REQUIRE(created.writer);
    auto recorder =
        std::make_unique<Recorder>(std::move(created.writer), profiler::StackLimits{16}, process);
    recorder->record(trace::DeviceInfo{});
    recorder->record(trace::ContextInfo{.id = 1});
    return recorder;
}

/// One thread's allocations and frees, with names and marks that are new now and then.
void work(Recorder& recorder, std::uint64_t thread, std::uint64_t pairs,
          std::atomic<std::uint64_t>* recorded = nullptr) {
    for (std::uint64_t i = 0; i < pairs; ++i) {
        trace::Event event;
        event.context = 1;
        event.address = ((thread << 40) + (i % 1000)) << 9;
        event.requested = 100 + i * 7919 % 100000;
        event.size = event.requested + 12;
        if (i >= 1000) {
            trace::Event freed = event;
            freed.type = trace::EventType::free_requested;
            if (i % 3 == 0) {
                recorder.record_freed(freed);
            } else {
                recorder.record(freed);
            }
        }
        if (i % 64 == 0) {
            usleep(pause_us);  // a program that does nothing else would overtake so small a log
        }
        if (i % 1009 == 0) {
            event.stack = recorder.capture_call_site();
            event.api = recorder.string_id("function " + std::to_string(i % 100));
            trace::Event mark;
            mark.type = trace::EventType::mark;
            mark.name = recorder.string_id("step " + std::to_string(i % 10));
            recorder.record(mark);
            recorder.record(trace::DeviceSample{.used = i, .total = 1 << 30});
        }
        recorder.record(event);
        if (recorded != nullptr) {
            recorded->fetch_add(1, std::memory_order_relaxed);
        }
    }
}

void work_in_threads(Recorder& recorder, std::uint64_t pairs,
                     std::atomic<std::uint64_t>* recorded = nullptr) {
    std::vector<std::thread> threads;
    threads.reserve(4);
    for (std::uint64_t thread = 1; thread <= 4; ++thread) {
        threads.emplace_back(
            [&recorder, thread, pairs, recorded] { work(recorder, thread, pairs, recorded); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

}  // namespace

TEST_CASE("past its limit the log has the figures of the whole recording") {
    const LogPath path;
    const auto recorder = start(*path);
    work_in_threads(*recorder, 300000);
    recorder->finish(trace::EndKind::exit, 0);
    CHECK(recorder->log_problem().empty());
    const std::string expected = model::report_to_string(recorder->aggregate());
    trace::Aggregator from_log;
    const trace::LogReadResult sums =
        trace::read_log(*path, from_log, nullptr, trace::LogPart::sums);
    CHECK(sums.status == trace::LogStatus::complete);
    CHECK(sums.records < from_log.event_count());
    CHECK(model::report_to_string(from_log) == expected);
    trace::Aggregator again;
    const trace::LogReadResult everything = trace::read_log(*path, again);
    CHECK(everything.status == trace::LogStatus::complete);
    CHECK(everything.gap);
    CHECK(model::report_to_string(again) == expected);
}

TEST_CASE("a kill at any moment leaves all that was recorded", "[kill]") {
    void* const memory =
        mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    auto& recorded = *new (memory) std::atomic<std::uint64_t>(0);
    int gaps = 0;
    for (std::uint64_t i = 0; i < 12; ++i) {
        CAPTURE(i);
        recorded = 0;
        const LogPath path;
        const pid_t child = fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const auto recorder = start(*path);
            work_in_threads(*recorder, 10000000, &recorded);
            _exit(2);
        }
        int status = 0;
        while (recorded.load() < i * 130000 && waitpid(child, &status, WNOHANG) == 0) {
            usleep(100);
        }
        kill(child, SIGKILL);
        REQUIRE(waitpid(child, &status, 0) == child);
        if (recorded.load() == 0) {
            continue;
        }
        trace::Aggregator sums;
        const auto result = trace::read_log(*path, sums, nullptr, trace::LogPart::sums);
        CHECK(result.status == trace::LogStatus::cut_off);
        trace::Aggregator everything;
        gaps += trace::read_log(*path, everything).gap ? 1 : 0;
        CHECK(model::report_to_string(sums) == model::report_to_string(everything));
        REQUIRE(sums.devices().size() == 1);
        // Each thread may have recorded one more than it said.
        const std::uint64_t allocations =
            sums.devices()[0]->kinds[static_cast<std::size_t>(trace::MemoryKind::device)].count;
        CHECK(allocations >= recorded.load());
        CHECK(allocations <= recorded.load() + 4);
        CHECK(sums.integrity().unmatched_frees == 0);
        CHECK(sums.integrity().overwritten_allocations == 0);
    }
    munmap(memory, 4096);
    CHECK(gaps > 1);
}
