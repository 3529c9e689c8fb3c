// Baselines: keyed by GPU and driver, deterministic, replaced atomically.
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/catch.hpp"
#include "tests/unit/check/runs.hpp"
#include "tests/unit/trace/temporary_folder.hpp"

using namespace memlab::report::check;
using memlab::report::RunMember;

namespace {

RunMember member_on(const std::string& gpu, std::uint64_t driver, std::uint64_t allocated) {
    RunMember member = member_with_gpu(allocated, 2 * allocated);
    member.report.devices[0].name = gpu;
    member.report.devices[0].driver_version = driver;
    return member;
}

Verdict against(const Baseline& baseline, const RunMember& member, const char* bound,
                bool missing_passes = false) {
    Options options;
    options.baseline = &baseline;
    options.baseline_name = "base.json";
    options.missing_baseline_passes = missing_passes;
    return Run({member}).verdict(limit_of(Metric::peak_allocated, bound), options);
}

}  // namespace

TEST_CASE("a baseline reads back as it was written, in one order") {
    const Limit of_site = limit_of(Metric::ooms, "0");
    const Run run({member_on("A 1", 13000, 100)});
    const auto figures = baseline_figures(run.processes, {of_site});
    REQUIRE(figures.size() >= 5);
    const std::string text = baseline_text(figures);
    std::vector<BaselineFigure> turned(figures.rbegin(), figures.rend());
    CHECK(baseline_text(turned) == text);
    const BaselineResult read = parse_baseline(text);
    CHECK(read.error.empty());
    REQUIRE(read.baseline);
    CHECK(baseline_text(read.baseline->figures()) == text);
    CHECK(read.baseline->find({"A 1", 13000}, "x", 0, Metric::peak_allocated, {}) ==
          Figure::whole(100));
    CHECK_FALSE(read.baseline->find({"A 1", 13010}, "x", 0, Metric::peak_allocated, {}));
    CHECK_FALSE(read.baseline->find({"A 1", 13000}, "y", 0, Metric::peak_allocated, {}));
}

TEST_CASE("a limit is above the figure of this GPU and driver") {
    const Run old({member_on("A", 13000, 100)});
    const Baseline baseline(baseline_figures(old.processes, {}));
    CHECK(against(baseline, member_on("A", 13000, 105), "+5%") == Verdict::kept);
    CHECK(against(baseline, member_on("A", 13000, 106), "+5%") == Verdict::exceeded);
    CHECK(against(baseline, member_on("A", 13000, 100), "+0") == Verdict::kept);
    CHECK(against(baseline, member_on("A", 13000, 101), "+0") == Verdict::exceeded);
    CHECK(against(baseline, member_on("A", 13010, 100), "+5%") == Verdict::unknown);
    CHECK(against(baseline, member_on("B", 13000, 100), "+5%") == Verdict::unknown);
    CHECK(against(baseline, member_on("B", 13000, 100), "+5%", true) == Verdict::no_baseline);
    // With one process each, the name does not matter.
    RunMember renamed = member_on("A", 13000, 106);
    renamed.report.process.executable = "/bin/y";
    CHECK(against(baseline, renamed, "+5%") == Verdict::exceeded);
}

TEST_CASE("a baseline of nothing allows percents of nothing") {
    const Run old({member_on("A", 13000, 0)});
    const Baseline baseline(baseline_figures(old.processes, {}));
    CHECK(against(baseline, member_on("A", 13000, 0), "+50%") == Verdict::kept);
    CHECK(against(baseline, member_on("A", 13000, 1), "+50%") == Verdict::exceeded);
    CHECK(against(baseline, member_on("A", 13000, 1), "+1") == Verdict::kept);
}

TEST_CASE("a relative limit without any baseline is a problem, also where a missing one passes") {
    Options options;
    options.missing_baseline_passes = true;
    const Run run({member_on("A", 13000, 1)});
    CHECK(run.held_to({limit_of(Metric::peak_allocated, "+5%")}, options).exit_code() == 2);
}

TEST_CASE("an update replaces what it knows and leaves the other GPUs") {
    memlab::test::TemporaryFolder folder;
    for (const std::string& path : {folder / "base.json", folder / "bases/"}) {
        const auto figures = [](const std::string& gpu, std::uint64_t bytes) {
            const Run run({member_on(gpu, 13000, bytes)});
            return baseline_figures(run.processes, {});
        };
        CHECK_FALSE(read_baseline(path).exists);
        CHECK(update_baseline(path, figures("A 1", 1)).empty());
        CHECK(update_baseline(path, figures("B", 2)).empty());
        CHECK(update_baseline(path, figures("A 1", 3)).empty());
        const BaselineResult read = read_baseline(path);
        REQUIRE(read.baseline);
        CHECK(read.baseline->find({"A 1", 13000}, "", 0, Metric::peak_allocated, {}) ==
              Figure::whole(3));
        CHECK(read.baseline->find({"B", 13000}, "", 0, Metric::peak_allocated, {}) ==
              Figure::whole(2));
    }
    CHECK(std::filesystem::exists(folder / "bases/a-1-13000.json"));
    CHECK(std::filesystem::exists(folder / "bases/b-13000.json"));
}

TEST_CASE("a file that is not a baseline is never overwritten") {
    memlab::test::TemporaryFolder folder;
    const Run run({member_on("A", 13000, 1)});
    const auto figures = baseline_figures(run.processes, {});
    for (const char* content : {"notes", "{\"format\": \"memlab-report\", \"version\": 1}", "{", "",
                                "{\"format\": \"memlab-baseline\", \"version\": 1, \"entries\": 3}",
                                "{\"format\": \"memlab-baseline\", \"version\": 2}"}) {
        const std::string path = folder / "taken";
        std::ofstream(path) << content;
        CAPTURE(content);
        CHECK_FALSE(update_baseline(path, figures).empty());
        CHECK(memlab::test::read_text(path) == content);
    }
}

TEST_CASE("a full disk leaves the old baseline") {
    memlab::test::TemporaryFolder folder;
    const std::string path = folder / "base.json";
    const Run small({member_on("A", 13000, 1)});
    REQUIRE(update_baseline(path, baseline_figures(small.processes, {})).empty());
    const std::string before = memlab::test::read_text(path);
    rlimit old{};
    getrlimit(RLIMIT_FSIZE, &old);
    rlimit none = old;
    none.rlim_cur = 100;
    auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &none);
    const Run large({member_on("A", 13000, 2)});
    const std::string problem = update_baseline(path, baseline_figures(large.processes, {}));
    setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, handler);
    CHECK(problem.find("cannot be written") != std::string::npos);
    CHECK(memlab::test::read_text(path) == before);
    std::size_t files = 0;
    for ([[maybe_unused]] const auto& file : std::filesystem::directory_iterator(folder.path())) {
        ++files;
    }
    CHECK(files == 1);
}

TEST_CASE("a damaged baseline is an error with a remedy, any other file is none") {
    CHECK(
        parse_baseline("{\"format\": \"memlab-baseline\", \"version\": 1}").error.find("damaged") !=
        std::string::npos);
    CHECK(parse_baseline("{\"format\": \"memlab-baseline\", \"version\": 1, \"entr")
              .error.find("damaged") != std::string::npos);
    for (const char* text : {"", "{}", "[]", "null", "{\"format\": 3}", "\xff"}) {
        const BaselineResult result = parse_baseline(text);
        CHECK(result.error.empty());
        CHECK_FALSE(result.baseline);
    }
}
