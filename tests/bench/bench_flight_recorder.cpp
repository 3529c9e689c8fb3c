// A recording far beyond its log's limit: how large the file becomes, and how long its figures take
// to read.
//
//   bench_flight_recorder [EVENTS [LIMIT IN MiB [FOLDER]]]
//
// The program is a synthetic one: 200 call sites with sizes of their own, 10,000 live allocations,
// each free of a random one. Writing, aggregating and checkpoints run on one thread, so the time of
// an event here is more than what a program sees.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "model/json_writer.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab;

namespace {

constexpr std::uint32_t call_sites = 200;
constexpr std::size_t live_allocations = 10000;

class Both {
  public:
    Both(const std::string& path, std::uint64_t limit)
        : writer_(std::move(trace::LogWriter::create(path, limit).writer)) {
        if (writer_ == nullptr) {
            std::fprintf(stderr, "cannot create %s\n", path.c_str());
            std::exit(2);
        }
    }

    template <typename Record>
    void on(const Record& record) {
        writer_->on(record);
        aggregator_.on(record);
        if (writer_->wants_checkpoint()) {
            make_checkpoint();
        }
    }

    std::string finish() {
        trace::End end;
        end.log_stopped_because = writer_->stopped_because();
        end.events_dropped = writer_->events_dropped();
        on(end);
        writer_->close();
        return model::report_to_string(aggregator_);
    }
    std::uint64_t checkpoints() const { return checkpoints_; }
    std::uint64_t checkpoint_size() const { return checkpoint_size_; }
    double slowest_checkpoint() const { return slowest_; }

  private:
    void make_checkpoint() {
        const auto from = std::chrono::steady_clock::now();
        const auto checkpoint = writer_->begin_checkpoint();
        aggregator_.checkpoint(*checkpoint);
        checkpoint->finish();
        for (std::size_t next = 0;;) {
            switch (writer_->append_checkpoint(*checkpoint, next)) {
                case trace::LogWriter::CheckpointStep::more:
                    ++next;
                    continue;
                case trace::LogWriter::CheckpointStep::later:
                    ::usleep(1000);
                    continue;
                case trace::LogWriter::CheckpointStep::complete:
                    break;
            }
            break;
        }
        ++checkpoints_;
        checkpoint_size_ = checkpoint->size();
        const std::chrono::duration<double> took = std::chrono::steady_clock::now() - from;
        slowest_ = std::max(slowest_, took.count());
    }

    std::unique_ptr<trace::LogWriter> writer_;
    trace::Aggregator aggregator_;
    std::uint64_t checkpoints_ = 0;
    std::uint64_t checkpoint_size_ = 0;
    double slowest_ = 0;
};

void define(Both& both) {
    both.on(trace::ProcessInfo{.pid = 1, .executable = "/synthetic"});
    both.on(trace::DeviceInfo{.name = "GPU", .total_bytes = std::uint64_t{80} << 30});
    both.on(trace::ContextInfo{.id = 1, .primary = true});
    both.on(trace::StringDef{.id = 1, .text = "cuMemAlloc_v2"});
    both.on(trace::ModuleDef{.id = 1, .path = "/synthetic", .start = 4096, .end = 1 << 20});
    for (std::uint32_t id = 1; id <= call_sites; ++id) {
        trace::StackDef stack{.id = id};
        for (std::uint32_t frame = 0; frame < 20; ++frame) {
            stack.frames.push_back({.module = 1, .address = std::uint64_t{id} * 64 + frame});
        }
        both.on(stack);
    }
}

void record(Both& both, std::uint64_t events) {
    struct Live {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    std::mt19937_64 random(1);
    std::vector<Live> live(live_allocations);
    trace::Event event;
    event.context = 1;
    event.api = 1;
    event.thread = 1;
    std::uint64_t time = 0;
    for (std::uint64_t done = 0; done < events;) {
        const std::uint64_t bits = random();
        Live& at = live[bits % live.size()];
        time += 1000 + bits % 1000;
        event.time_ns = time;
        if (at.size != 0) {
            event.type = trace::EventType::free_requested;
            event.stack = 0;
            event.address = at.address;
            event.requested = event.size = at.size;
            both.on(event);
            ++done;
        }
        event.type = trace::EventType::alloc;
        event.stack = 1 + static_cast<std::uint32_t>(bits >> 32) % call_sites;
        event.requested = event.size = at.size = 512 * event.stack;
        event.address = at.address =
            (std::uint64_t{1} << 40) + static_cast<std::uint64_t>(&at - live.data()) * 262144;
        both.on(event);
        ++done;
    }
}

double seconds_since(std::chrono::steady_clock::time_point from) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
}

}  // namespace

int main(int argc, char** argv) {
    const std::uint64_t events = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 20'000'000;
    const std::uint64_t limit = (argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 64) << 20;
    const std::string path =
        std::string(argc > 3 ? argv[3] : "/tmp") + "/bench_flight." + std::to_string(getpid());
    auto from = std::chrono::steady_clock::now();
    Both both(path, limit);
    define(both);
    record(both, events);
    const std::string expected = both.finish();
    const double recording = seconds_since(from);
    const std::uint64_t size = std::filesystem::file_size(path);
    from = std::chrono::steady_clock::now();
    trace::Aggregator sums;
    const trace::LogReadResult read = trace::read_log(path, sums, nullptr, trace::LogPart::sums);
    const double reading = seconds_since(from);
    const bool equal = model::report_to_string(sums) == expected;
    std::filesystem::remove(path);
    std::printf("events                %llu\n", static_cast<unsigned long long>(events));
    std::printf("recording             %.1f s, %.0f ns an event\n", recording,
                recording * 1e9 / static_cast<double>(events));
    std::printf("log                   %.1f MiB of %.1f MiB\n", static_cast<double>(size) / 1048576,
                static_cast<double>(limit) / 1048576);
    std::printf("checkpoints           %llu, the last of %.2f MiB, the slowest in %.1f ms\n",
                static_cast<unsigned long long>(both.checkpoints()),
                static_cast<double>(both.checkpoint_size()) / 1048576,
                both.slowest_checkpoint() * 1e3);
    std::printf("reading the figures   %.2f s, %llu records\n", reading,
                static_cast<unsigned long long>(read.records));
    std::printf("equal to the report   %s\n", equal ? "yes" : "NO");
    return equal && size <= limit ? 0 : 1;
}
