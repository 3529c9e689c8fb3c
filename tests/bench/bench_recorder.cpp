// What recording an event costs the program, by the number of live blocks, and how much host memory
// the aggregator needs. No driver, no pool and no stacks: the recorder, the aggregator and the log.
//   bench_recorder [FOLDER [BLOCKS]]
// FOLDER is where the log is written; a tmpfs shows the cost of writing it, less the disk's.
// BLOCKS is how many live blocks the last row has.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "profiler/clock.hpp"
#include "profiler/recorder.hpp"
#include "tests/support/counted_heap.hpp"

namespace memlab::profiler {
namespace {

using trace::Event;
using trace::EventType;

constexpr std::uint64_t first_address = std::uint64_t{0x7f} << 40;
constexpr std::uint64_t slot_bytes = 4096;
constexpr std::uint64_t slots_in_segment = 16384;
constexpr std::uint64_t events_of_pair = 3;  // alloc, free_requested, free_completed

/// A recorder, its log in `folder` (none: no log) and `blocks` live blocks of `sites` sites.
class Recording {
  public:
    Recording(const std::string& folder, std::uint64_t blocks, std::uint32_t sites)
        : path_(folder.empty() ? folder : folder + "/bench_recorder.memlog"), sites_(sites) {
        std::unique_ptr<trace::LogWriter> log;
        if (!path_.empty()) {
            auto created = trace::LogWriter::create(path_, 0);
            if (created.writer == nullptr) {
                std::fprintf(stderr, "%s\n", created.error.c_str());
                std::exit(1);
            }
            log = std::move(created.writer);
        }
        trace::ProcessInfo process;
        process.start_monotonic_ns = monotonic_ns();
        recorder_ = std::make_unique<Recorder>(std::move(log), StackLimits{0}, process);
        recorder_->record(trace::DeviceInfo{.index = 0, .name = "none", .total_bytes = 1 << 30});
        recorder_->record(trace::ContextInfo{.id = 1, .device = 0, .primary = true});
        for (std::uint32_t api = 1; api <= sites; ++api) {
            recorder_->string_id("site " + std::to_string(api));
        }
        for (std::uint64_t slot = 0; slot < blocks; slot += slots_in_segment) {
            Event segment = event(EventType::segment_alloc, slot);
            segment.requested = 0;
            segment.size = slots_in_segment * slot_bytes;
            recorder_->record(segment);
        }
        for (std::uint64_t slot = 0; slot < blocks; ++slot) {
            recorder_->record(event(EventType::alloc, slot));
        }
    }
    ~Recording() {
        recorder_->finish(trace::EndKind::exit);
        if (!path_.empty()) {
            unlink(path_.c_str());
        }
    }
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    void replace(std::uint64_t slot) {
        recorder_->record(event(EventType::free_requested, slot));
        Event completed = event(EventType::free_completed, slot);
        completed.api = 0;
        recorder_->record(completed);
        recorder_->record(event(EventType::alloc, slot));
    }

  private:
    Event event(EventType type, std::uint64_t slot) const {
        Event event;
        event.type = type;
        event.origin = trace::Origin::pool;
        event.context = 1;
        event.api = 1 + static_cast<std::uint32_t>(slot % sites_);
        event.address = first_address + slot * slot_bytes;
        event.requested = 1000 + slot % 1024;
        event.size = 2048;
        return event;
    }

    std::string path_;
    std::uint32_t sites_;
    std::unique_ptr<Recorder> recorder_;
};

/// Each thread replaces blocks of its own: always one (`same`) or any. Nanoseconds of the machine
/// for an event: the time of all threads together over the events of all threads together.
double nanoseconds_each(Recording& recording, std::uint64_t blocks, unsigned threads, bool same,
                        std::uint64_t events) {
    const std::uint64_t pairs = events / events_of_pair / threads;
    const std::uint64_t own = std::max<std::uint64_t>(blocks / threads, 1);
    double best = 0;
    for (int round = 0; round < 3; ++round) {
        std::barrier start(static_cast<std::ptrdiff_t>(threads) + 1);
        std::vector<std::thread> workers;
        for (unsigned t = 0; t < threads; ++t) {
            workers.emplace_back([&, t] {
                std::uint64_t random = 88172645463325252U + t;
                start.arrive_and_wait();
                for (std::uint64_t i = 0; i < pairs; ++i) {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    recording.replace(t * own + (same ? 0 : random % own));
                }
            });
        }
        start.arrive_and_wait();
        const auto begin = std::chrono::steady_clock::now();
        for (std::thread& worker : workers) {
            worker.join();
        }
        const std::chrono::duration<double, std::nano> took =
            std::chrono::steady_clock::now() - begin;
        const double each = took.count() / static_cast<double>(pairs * events_of_pair * threads);
        best = round == 0 || each < best ? each : best;
    }
    return best;
}

void measure(const std::string& folder, std::uint64_t most_blocks) {
    constexpr std::uint64_t events = 600'000;
    constexpr unsigned many = 8;
    std::printf("%s\n%12s %12s %12s %14s %14s %12s\n",
                folder.empty() ? "without a log" : ("log in " + folder).c_str(), "live blocks",
                "same, ns", "random, ns", "8 same, ns", "8 random, ns", "bytes/block");
    for (std::uint64_t blocks = 100; blocks <= most_blocks; blocks *= 10) {
        const std::uint64_t before = memlab::test::host_bytes;
        Recording recording(folder, blocks, 100);
        const double bytes =
            static_cast<double>(memlab::test::host_bytes - before) / static_cast<double>(blocks);
        const double same = nanoseconds_each(recording, blocks, 1, true, events);
        const double random = nanoseconds_each(recording, blocks, 1, false, events);
        const double many_same = nanoseconds_each(recording, blocks, many, true, events);
        const double many_random = nanoseconds_each(recording, blocks, many, false, events);
        std::printf("%12llu %12.1f %12.1f %14.1f %14.1f %12.1f\n",
                    static_cast<unsigned long long>(blocks), same, random, many_same, many_random,
                    bytes);
    }
}

}  // namespace
}  // namespace memlab::profiler

int main(int argc, char** argv) {
    using namespace memlab::profiler;
    const std::string folder = argc > 1 ? argv[1] : "";
    const std::uint64_t most = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
    measure("", most);
    if (!folder.empty()) {
        measure(folder, most);
    }
    const std::uint64_t before = memlab::test::host_bytes;
    const Recording recording("", 1'000'000, 100'000);
    std::printf("1,000,000 live blocks of 100,000 sites: %.1f MB\n",
                static_cast<double>(memlab::test::host_bytes - before) / 1e6);
    return 0;
}
