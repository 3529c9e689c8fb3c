// The exact combined peak from event logs, compared with known values.
#include "report/runs/exact_peaks.hpp"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"

using namespace memlab;
using memlab::test::TemporaryFolder;
using report::GpuUsage;
using report::RunCollection;

namespace {

constexpr std::uint64_t second = 1'000'000'000;

/// The bytes of an allocation, or minus the bytes of a freed one.
struct Step {
    std::uint64_t time_ns = 0;  ///< since the start of its process
    std::int64_t bytes = 0;
};

struct Life {
    std::uint64_t start_ns = 0;  ///< since boot
    std::uint64_t end_ns = 0;    ///< since its own start
    std::vector<Step> steps = {};
};

constexpr std::uint64_t boot_ns = 1'700'000'000 * second;

/// Writes the log of a process on one GPU. `wall_error_ns`: error of the wall clock at its start.
void write(const std::string& path, std::uint32_t pid, const Life& life, bool end = true,
           std::uint64_t wall_error_ns = 0) {
    auto created = trace::LogWriter::create(path, 0);
    REQUIRE(created.writer != nullptr);
    trace::LogWriter& log = *created.writer;
    trace::ProcessInfo process;
    process.pid = pid;
    process.host = "node1";
    process.start_monotonic_ns = life.start_ns;
    process.start_wall_ns = boot_ns + life.start_ns + wall_error_ns;
    log.on(process);
    log.on(trace::DeviceInfo{.index = 0, .name = "GPU", .uuid = "GPU-a", .total_bytes = 1 << 30});
    std::map<std::uint64_t, std::vector<std::uint64_t>> live;  // addresses by size
    std::uint64_t next = 1 << 20;
    for (const Step& step : life.steps) {
        trace::Event event;
        event.time_ns = step.time_ns;
        event.origin = trace::Origin::driver;
        event.size = static_cast<std::uint64_t>(std::abs(step.bytes));
        event.requested = event.size;
        if (step.bytes > 0) {
            event.type = trace::EventType::alloc;
            event.address = next;
            live[event.size].push_back(next);
            next += 1 << 20;
        } else {
            event.type = trace::EventType::free_requested;
            REQUIRE(!live[event.size].empty());
            event.address = live[event.size].back();
            live[event.size].pop_back();
        }
        log.on(event);
    }
    if (end) {
        log.on(trace::End{.time_ns = life.end_ns});
    }
    log.close();
}

/// The maximum combined bytes, evaluated after all events of a nanosecond.
std::uint64_t true_peak(const std::vector<Life>& lives) {
    std::map<std::uint64_t, std::int64_t> changes;
    for (const Life& life : lives) {
        std::int64_t held = 0;
        for (const Step& step : life.steps) {
            changes[life.start_ns + step.time_ns] += step.bytes;
            held += step.bytes;
        }
        changes[life.start_ns + life.end_ns] -= held;
    }
    std::int64_t now = 0;
    std::int64_t most = 0;
    for (const auto& [time, change] : changes) {
        now += change;
        most = std::max(most, now);
    }
    return static_cast<std::uint64_t>(most);
}

Life random_life(std::mt19937_64& random, std::size_t steps) {
    const auto below = [&](std::uint64_t n) { return random() % n; };
    Life life{.start_ns = 1000 * second + below(2 * second)};
    std::vector<std::int64_t> live;
    std::uint64_t time = 0;
    for (std::size_t i = 0; i < steps; ++i) {
        time += 1 + below(second / 1000);
        if (!live.empty() && below(2) == 0) {
            const std::size_t at = below(live.size());
            life.steps.push_back({time, -live[at]});
            live.erase(live.begin() + static_cast<std::ptrdiff_t>(at));
        } else {
            live.push_back(static_cast<std::int64_t>(1 + below(below(30) == 0 ? 100000 : 1000)));
            life.steps.push_back({time, live.back()});
        }
    }
    life.end_ns = time + below(1000);
    return life;
}

std::vector<GpuUsage> bounds_of(const RunCollection& run) {
    return report::combined_gpu_usage(run);
}
std::vector<GpuUsage> moments_of(const RunCollection& run) {
    std::vector<GpuUsage> gpus = report::combined_gpu_usage(run);
    report::find_exact_peaks(run, gpus);
    return gpus;
}

/// Two processes that overlap so that their timelines only give bounds.
std::vector<Life> two_lives(std::uint64_t seed = 1) {
    std::mt19937_64 random(seed);
    return {random_life(random, 5000), random_life(random, 5000)};
}

RunCollection write_two(const TemporaryFolder& folder, const std::vector<Life>& lives) {
    write(folder / "memlab.x.1.memlog", 1, lives[0]);
    write(folder / "memlab.x.2.memlog", 2, lives[1]);
    return report::collect_run({folder.path()});
}

}  // namespace

TEST_CASE("logs give the peak between the timelines' bounds") {
    std::mt19937_64 random(3);
    for (int round = 0; round < 6; ++round) {
        const TemporaryFolder folder;
        std::vector<Life> lives;
        for (std::uint32_t i = 0, n = 2 + static_cast<std::uint32_t>(random() % 4); i < n; ++i) {
            lives.push_back(random_life(random, 3000));
            const std::string log = folder / ("memlab.x." + std::to_string(i) + ".memlog");
            write(log, i, lives.back(), random() % 2 == 0);
            // A log that is cut off ends with its last step.
            lives.back().end_ns =
                report::collect_run({log}).members.at(0).report.process.duration_ns;
        }
        const RunCollection run = report::collect_run({folder.path()});
        const auto bounds = bounds_of(run);
        const auto exact = moments_of(run);
        REQUIRE(exact.size() == 1);
        CHECK(bounds[0].allocated.at_least <
              bounds[0].allocated.at_most);  // otherwise the test is vacuous
        CHECK_FALSE(bounds[0].allocated.from_logs);
        CHECK(exact[0].allocated.from_logs);
        CHECK(exact[0].allocated.exact());
        CHECK(exact[0].allocated.at_most == true_peak(lives));
        CHECK(exact[0].allocated.at_least >= bounds[0].allocated.at_least);
        CHECK(exact[0].allocated.at_most <= bounds[0].allocated.at_most);
        CHECK(exact[0].allocated.sum == bounds[0].allocated.sum);
    }
}

TEST_CASE("the machine's monotonic clock decides, whatever the wall clock did") {
    const TemporaryFolder folder;
    const std::vector<Life> lives = two_lives();
    write(folder / "memlab.x.1.memlog", 1, lives[0]);
    write(folder / "memlab.x.2.memlog", 2, lives[1], true, second / 2);
    const auto gpus = moments_of(report::collect_run({folder.path()}));
    CHECK(gpus[0].allocated.exact());
    CHECK(gpus[0].allocated.at_most == true_peak(lives));
}

TEST_CASE("clocks that have nothing in common are not compared") {
    const TemporaryFolder folder;
    std::vector<Life> lives = two_lives();
    write(folder / "memlab.x.1.memlog", 1, lives[0]);
    // An hour later by the wall clock, which is the only clock that can be compared.
    write(folder / "memlab.x.2.memlog", 2, lives[1], true, 3600 * second);
    lives[1].start_ns += 3600 * second;
    const auto gpus = moments_of(report::collect_run({folder.path()}));
    CHECK(gpus[0].allocated.at_most == true_peak(lives));
}

TEST_CASE("what one process gives back another takes at the same nanosecond") {
    const TemporaryFolder folder;
    Life first = two_lives()[0];
    first.steps = {{10, 500}, {second, 100}, {2 * second, -500}};
    first.end_ns = 3 * second;
    Life other = first;
    other.steps = {{5, 300}, {2 * second, 400}, {2 * second, -400}, {2 * second, 500}};
    RunCollection run = write_two(folder, {first, other});
    auto gpus = report::combined_gpu_usage(run);
    gpus[0].allocated.at_least = 0;  // as if the timelines only gave bounds
    report::find_exact_peaks(run, gpus);
    CHECK(gpus[0].allocated.at_most == 900);  // 600 and 300, then 100 and 800
    CHECK(gpus[0].allocated.at_wall_ns == boot_ns + first.start_ns + second);
}

TEST_CASE("a log that is missing or damaged leaves the bounds") {
    const TemporaryFolder folder;
    const std::vector<Life> lives = two_lives();
    RunCollection run = write_two(folder, lives);
    const auto bounds = bounds_of(run);
    const auto unchanged = [&] {
        const auto gpus = moments_of(run);
        return !gpus[0].allocated.from_logs &&
               gpus[0].allocated.at_most == bounds[0].allocated.at_most &&
               gpus[0].allocated.at_least == bounds[0].allocated.at_least;
    };
    CHECK_FALSE(unchanged());
    const std::string second_log = folder / "memlab.x.2.memlog";
    auto bytes = test::read_file(second_log);
    const auto whole = bytes;
    bytes[bytes.size() / 2] ^= 1U;
    test::write_file(second_log, bytes);
    CHECK(unchanged());
    test::write_file(second_log, whole);
    CHECK_FALSE(unchanged());
    std::filesystem::remove(second_log);
    CHECK(unchanged());
}

TEST_CASE("one that still runs holds on beyond its log") {
    const TemporaryFolder folder;
    std::vector<Life> lives = two_lives();
    lives[1].start_ns = lives[0].start_ns + lives[0].end_ns / 2;
    RunCollection run = write_two(folder, lives);
    const auto ended = moments_of(run);
    CHECK(ended[0].allocated.at_most == true_peak(lives));
    run.members[0].running = true;
    lives[0].end_ns += 10 * second;
    const auto held = moments_of(run);
    CHECK(held[0].allocated.exact());
    CHECK(held[0].allocated.at_most == true_peak(lives));
}
