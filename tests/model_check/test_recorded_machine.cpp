// A recording is sufficient to replay its pools: random machines (random_machine.hpp) are recorded
// as a live process is, by PoolRecorder and Recorder into an event log on disk. A replay of the
// log, with the same options, must give the same blocks and the same reserved curve to the byte,
// and the curve in the log must equal that of the live pools.
//   MEMLAB_TEST_SEED=<seed> MEMLAB_TEST_RUNS=<programs> model_check_recorded_machine
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <unistd.h>

#include "interpose/memory/pool_recorder.hpp"
#include "profiler/recorder.hpp"
#include "report/whatif/replay.hpp"
#include "tests/catch.hpp"
#include "tests/model_check/random_machine.hpp"
#include "tests/unit/trace/recording.hpp"
#include "trace/reading/log_reader.hpp"

namespace memlab::model_check {

namespace {

using allocator::testing::setting;
using allocator::testing::sound;

constexpr std::uint64_t steps = 700;

/// Sums the reserved bytes of each device from the log, and compares them with what the pools
/// reported at the time, which the recording below writes in between as device samples.
class Curve {
  public:
    void add(const test::Records& records) {
        for (const test::AnyRecord& record : records) {
            if (const auto* context = std::get_if<trace::ContextInfo>(&record)) {
                device_of_[context->id] = context->device;
                reserved_[context->device] = 0;
            } else if (const auto* event = std::get_if<trace::Event>(&record)) {
                add(*event);
            } else if (const auto* sample = std::get_if<trace::DeviceSample>(&record)) {
                ++compared;
                differing += reserved_[sample->device] != sample->used ? 1 : 0;
            }
        }
    }

    std::uint64_t compared = 0;
    std::uint64_t differing = 0;
    std::uint64_t peak = 0;  ///< of all devices together

  private:
    void add(const trace::Event& event) {
        std::uint64_t& reserved = reserved_[device_of_[event.context]];
        switch (event.type) {
            case trace::EventType::segment_alloc:
            case trace::EventType::segment_map:
                reserved += event.size;
                break;
            case trace::EventType::segment_free:
            case trace::EventType::segment_unmap:
                reserved -= event.size;
                break;
            default:
                return;
        }
        std::uint64_t sum = 0;
        for (const auto& each : reserved_) {
            sum += each.second;
        }
        peak = std::max(peak, sum);
    }

    std::map<std::uint32_t, std::uint32_t> device_of_;
    std::map<std::uint32_t, std::uint64_t> reserved_;
};

/// Records a machine into a log.
class Recording final : public MachineListener {
  public:
    explicit Recording(const std::string& path)
        : recorder_(open(path), profiler::StackLimits{0},
                    trace::ProcessInfo{.pid = 1, .executable = "/opt/app/random"}) {}

    allocator::PoolObserver& begins(std::size_t device, const allocator::PoolOptions& options,
                                    std::uint64_t total_memory) override {
        const auto index = static_cast<std::uint32_t>(device);
        if (pools_.size() <= device) {
            trace::DeviceInfo info;
            info.index = index;
            info.uuid = "GPU-" + std::to_string(device);
            info.total_bytes = total_memory;
            recorder_.record(info);
            pools_.emplace_back();
            settings_[index] = {options, total_memory};
        } else {
            recorder_.context_lost(pools_[device].context);
        }
        Heard& heard = pools_[device];
        heard.context = ++last_context_;
        recorder_.record(trace::ContextInfo{heard.context, index, true});
        heard.observer =
            std::make_unique<interpose::PoolRecorder>(&recorder_, index, heard.context);
        return *heard.observer;
    }

    void looked(std::size_t device, std::int64_t reserved_bytes) override {
        recorder_.record(trace::DeviceSample{0, static_cast<std::uint32_t>(device),
                                             static_cast<std::uint64_t>(reserved_bytes),
                                             std::uint64_t{1} << 40});
    }

    void finish() { recorder_.finish(trace::EndKind::exit); }
    std::string problem() const { return recorder_.log_problem(); }

    report::whatif::ReadPoolOptions options() const {
        return [this](const std::vector<trace::OptionValue>&, const trace::DeviceInfo& device, bool,
                      report::whatif::PoolInForce* pool, std::string*) {
            *pool = settings_.at(device.index);
            return true;
        };
    }

  private:
    struct Heard {
        std::uint32_t context = 0;
        std::unique_ptr<interpose::PoolRecorder> observer;
    };

    static std::unique_ptr<trace::LogWriter> open(const std::string& path) {
        trace::LogWriter::Result created = trace::LogWriter::create(path, 0);
        return std::move(created.writer);
    }

    profiler::Recorder recorder_;
    std::vector<Heard> pools_;
    std::map<std::uint32_t, report::whatif::PoolInForce> settings_;
    std::uint32_t last_context_ = 0;
};

struct Sum {
    std::uint64_t programs = 0;
    std::uint64_t events = 0;
    std::uint64_t segments = 0;
    std::uint64_t compared = 0;
};

/// A temporary file, removed by the destructor.
class TemporaryFile {
  public:
    TemporaryFile() {
        const char* folder = std::getenv("TMPDIR");
        path_ = std::string(folder != nullptr ? folder : "/tmp") + "/memlab_recorded_machine." +
                std::to_string(getpid()) + ".memlog";
        unlink(path_.c_str());
    }
    ~TemporaryFile() { unlink(path_.c_str()); }
    TemporaryFile(const TemporaryFile&) = delete;
    TemporaryFile& operator=(const TemporaryFile&) = delete;
    const std::string& path() const { return path_; }

  private:
    std::string path_;
};

/// Runs a program of this seed; empty when nothing was wrong with it.
std::string record(std::uint64_t seed, Fibers& fibers, Recording& recording) {
    std::string problem;
    {
        RandomMachine machine(seed, fibers, Planted::nothing, &recording);
        problem = machine.run(steps);
    }
    recording.finish();
    return problem.empty() ? recording.problem() : problem;
}

/// Runs and records a program; returns the first difference in its log, or empty.
std::string replay(std::uint64_t seed, Fibers& fibers, Sum& sum) {
    const TemporaryFile file;
    Recording recording(file.path());
    if (const std::string problem = record(seed, fibers, recording); !problem.empty()) {
        return "the recording: " + problem;
    }
    const report::whatif::ReplayResult result =
        report::whatif::replay_log(file.path(), recording.options());
    for (const std::string& problem : {result.error, result.warning, result.divergence}) {
        if (!problem.empty()) {
            return problem;
        }
    }
    test::Recording read;
    trace::read_log(file.path(), read);
    Curve curve;
    curve.add(read.records);
    ++sum.programs;
    sum.events += result.events;
    sum.segments += result.segments;
    sum.compared += curve.compared;
    if (curve.differing != 0) {
        return "the log's reserved curve is not the pools' own at " +
               std::to_string(curve.differing) + " of " + std::to_string(curve.compared) +
               " moments";
    }
    if (curve.peak != result.reserved_peak) {
        return "the replay's reserved peak is " + std::to_string(result.reserved_peak) +
               ", the recorded one " + std::to_string(curve.peak);
    }
    return {};
}

}  // namespace

TEST_CASE("a thousand recorded machines are replayed to the byte") {
#ifdef NDEBUG
    constexpr std::uint64_t usual = 1000;
#else
    constexpr std::uint64_t usual = 60;
#endif
    const std::uint64_t first = setting("MEMLAB_TEST_SEED", 1);
    const std::uint64_t runs = setting("MEMLAB_TEST_RUNS", usual);
    Fibers fibers;
    Sum sum;
    for (std::uint64_t seed = first; seed < first + runs; ++seed) {
        CAPTURE(seed);
        const std::string problem = replay(seed, fibers, sum);
        REQUIRE(problem == sound);
    }
    std::printf(
        "%llu programs: %llu pool events, %llu segments and mappings, the curve compared "
        "at %llu moments\n",
        static_cast<unsigned long long>(sum.programs), static_cast<unsigned long long>(sum.events),
        static_cast<unsigned long long>(sum.segments),
        static_cast<unsigned long long>(sum.compared));
    CHECK(sum.events > runs * 100);
    CHECK(sum.segments > runs * 5);
}

TEST_CASE("a replay with other options, or of a changed log, is not equal") {
    Fibers fibers;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        const TemporaryFile file;
        Recording recording(file.path());
        const std::string problem = record(seed, fibers, recording);
        REQUIRE(problem == sound);
        const report::whatif::ReadPoolOptions right = recording.options();
        const auto wrong = [&right](const std::vector<trace::OptionValue>& values,
                                    const trace::DeviceInfo& device, bool first,
                                    report::whatif::PoolInForce* pool, std::string* why) {
            right(values, device, first, pool, why);
            pool->options.rounding *= 2;
            pool->options.coarse_alignment *= 2;
            return true;
        };
        CHECK(report::whatif::replay_log(file.path(), wrong).divergence != sound);

        test::Recording read;
        trace::read_log(file.path(), read);
        const auto segment =
            std::find_if(read.records.begin(), read.records.end(), [](const test::AnyRecord& each) {
                const auto* event = std::get_if<trace::Event>(&each);
                return event != nullptr && (event->type == trace::EventType::segment_alloc ||
                                            event->type == trace::EventType::segment_map);
            });
        REQUIRE(segment != read.records.end());
        read.records.erase(segment);
        Curve curve;
        curve.add(read.records);
        CHECK(curve.differing > 0);
        const report::whatif::ReplayResult changed = report::whatif::replay_records(
            [&](trace::RecordSink& sink) {
                test::feed(read.records, sink);
                return trace::LogReadResult{};
            },
            right);
        CHECK(changed.divergence != sound);
    }
}

}  // namespace memlab::model_check
