// What would have served an allocation that failed: only what a replay shows is said.
#include "report/whatif/oom_advice.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "report/summary/alike_failures.hpp"
#include "report/whatif/pool_settings.hpp"
#include "tests/catch.hpp"
#include "tests/unit/whatif/live_pool.hpp"
#include "tests/unit/whatif/random_programs.hpp"

using namespace memlab;
using namespace memlab::test;
using namespace memlab::report::whatif;

namespace {

bool read_pool_options(const PoolSettings& settings, allocator::PoolOptions* options, bool*,
                       std::string* problem) {
    *options = {};
    for (const auto& [name, value] : settings) {
        if (name == "MEMLAB_BACKEND") {
            options->expandable = value == "vmm";
        } else if (name == "MEMLAB_MAX_SPLIT_SIZE_MB") {
            options->max_split_size = std::stoull(value) * mib;
        } else if (!set_pool_option(name, value, options, problem)) {
            return false;
        }
    }
    return true;
}

/// A pool of 128 MiB, of which the first 16 are kept, and a request for as much as the rest and
/// more; then `later` blocks of 3 MiB.
struct Failed {
    explicit Failed(std::uint64_t requested, int later = 0) {
        ProgramWriter writer;
        const std::uint32_t first = writer.allocate(128 * mib);
        writer.free(first);
        writer.allocate(16 * mib);
        const std::uint32_t attempt = writer.allocate(requested);
        writer.program.steps.replace(writer.program.steps.size() - 1, {StepKind::attempt, attempt});
        for (int i = 0; i < later; ++i) {
            writer.allocate(3 * mib);
        }
        writer.program.attempts = 1;
        writer.program.recorded.pooled = 2;
        oom.time_ns = writer.program.allocations[attempt].time_ns;
        oom.requested_bytes = requested;
        recording.programs.push_back(std::move(writer.program));
        oom.kind = "device";
        oom.device_total_bytes = 1024 * mib;
        oom.device_free_bytes = 64 * mib;
        oom.pool.reserved = 128 * mib;
        oom.pool.allocated = 16 * mib;
        oom.current.reserved = 128 * mib;
        oom.kinds.add("device", 16 * mib);
        oom.refused_by = "driver";
        report.devices.emplace_back();
    }

    std::optional<std::vector<std::string>> advice() const {
        return advise_on_oom(recording, report, oom, read_pool_options);
    }
    bool says(const std::string& what) const {
        const auto sentences = advice();
        return sentences &&
               std::any_of(sentences->begin(), sentences->end(),
                           [&](const auto& each) { return each.find(what) != std::string::npos; });
    }

    report::whatif::Recording recording;
    model::Report report;
    model::Oom oom;
};

}  // namespace

TEST_CASE("a setting that serves the request in a replay is advised") {
    const Failed failed(128 * mib);
    CHECK(failed.says("MEMLAB_BACKEND=vmm serves it within the same 192.00 MiB."));
    CHECK_FALSE(failed.says("MEMLAB_MAX_SPLIT_SIZE_MB=32"));
    CHECK_FALSE(failed.says("MEMLAB_LIMIT"));
}

TEST_CASE("a setting that refuses later what the recorded settings refuse, too, is advised") {
    constexpr int fit_in_neither = 500;
    CHECK(Failed(128 * mib, fit_in_neither).says("within the same 192.00 MiB."));
}

TEST_CASE("nothing is advised where no replay serves the request") {
    const Failed failed(512 * mib);
    REQUIRE(failed.advice());
    CHECK(failed.advice()->empty());
}

TEST_CASE("nothing is advised where the replay does not fail as the recording did") {
    Failed failed(128 * mib);
    failed.oom.device_free_bytes = 512 * mib;  // there was enough: something else was in the way
    CHECK_FALSE(failed.advice());
    failed = Failed(128 * mib);
    failed.oom.time_ns += 1;  // of no call in the log
    CHECK_FALSE(failed.advice());
    failed = Failed(128 * mib);
    failed.recording.programs[0].recorded.pooled = 0;  // the driver served the program
    CHECK_FALSE(failed.advice());
}

TEST_CASE("a limit that would do is the least that a replay passes with") {
    Failed failed(128 * mib);
    failed.oom.refused_by = "memlab_limit";
    failed.oom.device_free_bytes = 876 * mib;  // 148 in use, 20 of them beside the pool
    failed.report.devices[0].limit_bytes = 212 * mib;
    CHECK(failed.says("MEMLAB_BACKEND=vmm serves it within the same 192.00 MiB."));
    CHECK(failed.says("MEMLAB_LIMIT=276MiB is enough to serve it."));
    failed.oom.device_total_bytes = 250 * mib;
    failed.oom.device_free_bytes = 102 * mib;
    CHECK_FALSE(failed.says("MEMLAB_LIMIT"));  // the device has less
}

TEST_CASE("other processes are named when the request is served without them") {
    Failed failed(128 * mib);
    failed.oom.others = model::Oom::Others{.bytes = 100 * mib, .processes = 1};
    CHECK(failed.says("Without the 100.00 MiB of other processes"));
    failed.oom.others->bytes = 10 * mib;
    CHECK_FALSE(failed.says("other processes"));
}

TEST_CASE("failures of one place that are explained in the same words are one kind") {
    model::Report report;
    for (std::uint64_t i = 0; i < 30; ++i) {
        model::Oom& oom = report.ooms.emplace_back();
        oom.requested_bytes = (4 << 20) + 4096 * i;
        oom.device = i == 29 ? 1 : 0;
    }
    report::Summary summary;
    summary.report = &report;
    for (const model::Oom& oom : report.ooms) {
        summary.ooms.push_back({.oom = &oom,
                                .place = {},
                                .holders = {},
                                .explanation = "It is short by " +
                                               std::to_string(oom.requested_bytes / 1000) +
                                               ".00 KiB, fragmentation aside."});
    }
    summary.ooms[7].explanation = "The request is larger than the whole device.";
    const auto groups = report::group_failures(summary);
    REQUIRE(groups.size() == 3);
    CHECK(groups[0].ooms.size() == 28);
    CHECK(groups[1].ooms == std::vector<std::size_t>{7});
    CHECK(groups[2].ooms == std::vector<std::size_t>{29});  // another GPU's
}
