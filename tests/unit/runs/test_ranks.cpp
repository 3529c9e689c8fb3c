// Comparison of ranks: the process that represents a rank, imbalance, differing places.
#include "report/runs/ranks.hpp"

#include <cmath>
#include <limits>

#include "report/runs/process_rank.hpp"
#include "report/runs/render.hpp"
#include "report/text/units.hpp"
#include "tests/catch.hpp"
#include "tests/unit/runs/synthetic_member.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

RunMember ranked(std::uint64_t rank, std::uint64_t pid, std::uint64_t parent,
                 std::uint64_t allocated, std::uint64_t world = 4) {
    RunMember member = synthetic_member(pid, parent, 100 + pid);
    member.report.process.ranks = {{"RANK", std::to_string(rank)},
                                   {"LOCAL_RANK", std::to_string(rank % 2)},
                                   {"WORLD_SIZE", std::to_string(world)}};
    if (allocated != 0) {
        give_device(member, "GPU-" + std::to_string(rank), allocated, 2 * allocated);
    }
    return member;
}

/// A site of `bytes` at `address` in a library of that build.
void give_site(RunMember& member, std::uint64_t address, const std::string& build,
               std::uint64_t bytes, const std::string& kind = "device") {
    Report& report = member.report;
    report.modules.push_back({"/lib/libx.so", build});
    report.frames.push_back({report.modules.size() - 1, address});
    Stack stack;
    stack.frames = {report.frames.size() - 1};
    report.stacks.push_back(stack);
    Site site;
    site.kind = kind;
    site.stack = report.stacks.size() - 1;
    site.peak_bytes = bytes;
    report.sites.push_back(site);
}

RankComparison compare(const RunCollection& run, const std::optional<Level>& level = {}) {
    std::map<std::size_t, Resolver> resolvers;
    const auto resolver = [&](std::size_t member) -> Resolver& {
        return resolvers.try_emplace(member, run.members[member].report, nullptr).first->second;
    };
    return compare_ranks(run, resolver, level);
}

/// PyTorch's cache on the first GPU.
void give_cache(RunMember& member, std::uint64_t allocated) {
    Device& cache = give_device(member, "", allocated, 2 * allocated);
    cache.index = 64;
    cache.allocator = "PyTorch";
    cache.on_gpu = 0;
}

}  // namespace

TEST_CASE("the variables of the launchers") {
    Process process;
    CHECK_FALSE(find_rank(process));
    for (const char* name : {"RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK",
                             "MV2_COMM_WORLD_RANK", "SLURM_PROCID"}) {
        process.ranks = {{name, "12"}, {"LOCAL_RANK", "3"}};
        CHECK(find_rank(process) == 12);
    }
    process.ranks = {{"RANK", "1"}, {"SLURM_PROCID", "0"}};
    CHECK(find_rank(process) == 1);
    for (const char* value : {"", "x", "1x", "-1", "99999999999999999999"}) {
        process.ranks = {{"RANK", value}};
        CHECK_FALSE(find_rank(process));
    }
    process.ranks = {{"RANK", "none"}, {"PMI_RANK", "2"}};
    CHECK(find_rank(process) == 2);
}

TEST_CASE("imbalance is the largest over the mean") {
    RunCollection run;
    run.members = {ranked(2, 12, 1, 100), ranked(0, 10, 1, 100), ranked(1, 11, 1, 300),
                   ranked(3, 13, 1, 100)};
    const RankComparison result = compare(run);
    REQUIRE(result.ranks.size() == 4);
    CHECK(result.ranks[1].rank == 1);
    CHECK(result.ranks[1].member == 2);
    CHECK(result.ranks[1].local_rank == 1);
    CHECK(result.ranks[1].gpus == std::vector<std::string>{"GPU-1"});
    CHECK(result.world_size == 4);
    CHECK(result.allocated.rank == 1);
    CHECK(result.allocated.largest == 300);
    CHECK(std::fabs(result.allocated.mean - 150) < 1e-9);
    REQUIRE(result.allocated.ratio);
    CHECK(std::fabs(*result.allocated.ratio - 2) < 1e-9);
    CHECK(result.reserved.largest == 600);
    CHECK(result.notes.empty());
}

TEST_CASE("ranks that used nothing have no imbalance") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 0, 2), ranked(1, 11, 1, 0, 2)};
    const RankComparison result = compare(run);
    CHECK(result.ranks.size() == 2);
    CHECK_FALSE(result.allocated.ratio);
}

TEST_CASE("helpers of a rank are counted, a second run is said") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 100, 2), ranked(1, 11, 1, 100, 2), ranked(0, 20, 10, 500, 2),
                   ranked(1, 21, 11, 0, 2)};
    RankComparison result = compare(run);
    CHECK(result.notes.empty());
    CHECK(result.ranks[0].processes == 2);
    CHECK(result.ranks[0].allocated_peak == 500);
    CHECK(result.ranks[1].processes == 1);  // helpers without memory are not counted
    run.members.push_back(ranked(1, 31, 1, 50, 2));
    result = compare(run);
    REQUIRE(result.notes.size() == 1);
    CHECK(result.notes[0].find("Rank 1 was found twice (memlab.x.11.json and memlab.x.31.json)") ==
          0);
    CHECK(result.ranks[1].allocated_peak == 100);
}

TEST_CASE("missing ranks are named") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 1, 5), ranked(3, 13, 1, 1, 5)};
    const RankComparison result = compare(run);
    REQUIRE(result.notes.size() == 1);
    CHECK(result.notes[0] == "3 of 5 ranks are missing: 1, 2, 4.");
    run.members = {ranked(0, 10, 1, 1, ~std::uint64_t{0})};
    CHECK(compare(run).notes[0].size() < 200);
}

TEST_CASE("places that differ, whatever the build of the library; equal ones are left out") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 1000, 2), ranked(1, 11, 1, 1000, 2)};
    give_site(run.members[0], 0x10, "aa", 700);
    give_site(run.members[1], 0x10, "bb", 500);  // another build: the names decide
    give_site(run.members[0], 0x20, "aa", 300);
    give_site(run.members[1], 0x20, "bb", 300);
    give_site(run.members[1], 0x30, "bb", 90);
    give_site(run.members[1], 0x30, "bb", 10);              // a second site of that place
    give_site(run.members[1], 0x40, "bb", 9999, "pinned");  // host memory
    const RankComparison result = compare(run);
    REQUIRE(result.places.size() == 2);
    CHECK(result.places[0].peaks == std::vector<std::uint64_t>{700, 500});
    CHECK(result.places[0].difference() == 200);
    CHECK(result.places[0].max_rank == 0);
    CHECK(result.places[0].min_rank == 1);
    CHECK(result.places[1].peaks == std::vector<std::uint64_t>{0, 100});
    CHECK(result.places[1].max_rank == 1);
}

TEST_CASE("call stacks of one place are one row") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 1000, 2), ranked(1, 11, 1, 1000, 2)};
    for (RunMember& member : run.members) {
        give_site(member, 0x10, "aa", 100);
        for (const std::uint64_t caller : {0x500, 0x600}) {
            Report& report = member.report;
            report.frames.push_back({report.modules.size() - 1, caller});
            Stack stack;
            stack.frames = {0, report.frames.size() - 1};
            report.stacks.push_back(stack);
            Site site = report.sites.front();
            site.stack = report.stacks.size() - 1;
            site.peak_bytes = (&member - run.members.data()) * caller;
            report.sites.push_back(site);
        }
    }
    const RankComparison result = compare(run);
    REQUIRE(result.places.size() == 1);
    CHECK(result.places[0].peaks == std::vector<std::uint64_t>{100, 100 + 0x500 + 0x600});
    REQUIRE(result.places[0].frames.size() == 2);
    CHECK(result.places[0].frames[1].address == 0x600);  // the stack that differs most
}

TEST_CASE("ranks are compared at the level of frameworks where each has one") {
    RunCollection run;
    run.members = {ranked(0, 10, 1, 1000, 2), ranked(1, 11, 1, 2000, 2)};
    for (RunMember& member : run.members) {
        give_cache(member, 300);
        give_site(member, 0x10, "aa", member.report.process.pid);  // a segment, or NCCL's buffer
        give_site(member, 0x20, "aa", 2 * member.report.process.pid);
        member.report.sites.back().device = 64;
    }
    run.members[1].report.devices[1].curves[1]->peak_bytes = 400;
    const RankComparison framework = compare(run);
    CHECK(framework.level == Level::framework);
    CHECK(framework.allocated.largest == 400);
    CHECK(framework.ranks[0].allocated_peak == 300);
    CHECK(framework.ranks[0].gpus == std::vector<std::string>{"GPU-0"});
    REQUIRE(framework.places.size() == 1);
    CHECK(framework.places[0].peaks == std::vector<std::uint64_t>{20, 22});
    const RankComparison driver = compare(run, Level::driver);
    CHECK(driver.allocated.largest == 2000);
    REQUIRE(driver.places.size() == 1);
    CHECK(driver.places[0].peaks == std::vector<std::uint64_t>{10, 11});
    const RunView view = view_run("run", std::move(run));
    CHECK(
        render_ranks_text(view, framework, {{}, 3, false, ""})
            .starts_with(
                "2 ranks of 2  what PyTorch's cache handed out; --level driver: what CUDA did\n"));

    RunCollection one;  // the other has no cache: its tensors are not seen
    one.members = {ranked(0, 10, 1, 1000, 2), ranked(1, 11, 1, 2000, 2)};
    give_cache(one.members[0], 300);
    CHECK(compare(one).level == Level::driver);
    CHECK(compare(one).ranks[0].allocated_peak == 1000);
    CHECK(compare(one, Level::framework).ranks[0].allocated_peak == 300);
    CHECK(compare(one, Level::framework).ranks[1].allocated_peak == 2000);
}

TEST_CASE("nn.Modules of ranks stand side by side by name, at the level that is shown") {
    RunCollection run;
    for (const std::uint64_t rank : {0, 1}) {
        RunMember& member = run.members.emplace_back(ranked(rank, 10 + rank, 1, 1000, 2));
        give_cache(member, 300);
        give_site(member, 16, "b", 300, "suballocation");
        Report& report = member.report;
        report.sites.back().device = 64;
        report.sites.back().at_peak_count = 3;
        report.sites.back().at_peak_bytes = 300;
        // The same name twice, and through a wrapper on one of them.
        for (const char* const name :
             {"encoder.0", rank == 0 ? "encoder.0" : "_orig_mod.encoder.0"}) {
            NnModuleStack stack;
            stack.name = name;
            NnModuleStack::Holding held;
            held.at_peak_count = 1;
            held.at_peak_bytes = 50 + 70 * rank;
            stack.sites.push_back(held);
            report.nn_modules.push_back(std::move(stack));
        }
    }
    const RankComparison framework = compare(run);
    REQUIRE(framework.nn_modules.size() == 2);
    CHECK(framework.nn_modules[0].name == "encoder.0");
    CHECK(framework.nn_modules[0].bytes == std::vector<std::uint64_t>{100, 240});
    CHECK(framework.nn_modules[0].max_rank == 1);
    CHECK(framework.nn_modules[0].difference() == 140);
    CHECK(framework.nn_modules[1].name == "[of no nn.Module]");
    CHECK(framework.nn_modules[1].bytes == std::vector<std::uint64_t>{200, 60});
    CHECK(compare(run, Level::driver).nn_modules.empty());
    run.members[1].report.nn_modules.clear();  // it recorded none
    CHECK(compare(run).nn_modules[0].bytes == std::vector<std::uint64_t>{200, 0});
}

TEST_CASE("the mean of the largest figures that there are is one of them") {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    RunCollection run;
    for (const std::uint64_t rank : {0, 1}) {
        run.members.push_back(ranked(rank, 10 + rank, 1, 1, 2));
        for (auto& curve : run.members.back().report.devices.back().curves) {
            if (curve) {
                curve->peak_bytes = most;
            }
        }
    }
    const RunView view = view_run("run", std::move(run));
    const std::string text = render_ranks_text(view, compare(view.collection), {{}, 3, false, ""});
    CHECK(text.find("the mean is " + format_bytes(most)) != std::string::npos);
}
