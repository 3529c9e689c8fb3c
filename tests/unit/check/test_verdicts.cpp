// Verdicts: a figure at its limit passes, a missing measurement does not, every process counts.
#include "tests/catch.hpp"
#include "tests/unit/check/runs.hpp"

using namespace memlab::report::check;
using memlab::report::RunMember;

namespace {

/// A stack of one frame in `module`, and a site of it.
memlab::model::Site& give_site(RunMember& member, const std::string& module) {
    memlab::model::Report& report = member.report;
    report.modules.push_back({module, ""});
    report.frames.push_back({report.modules.size() - 1, 16});
    memlab::model::Stack stack;
    stack.frames = {report.frames.size() - 1};
    report.stacks.push_back(stack);
    memlab::model::Site site;
    site.kind = "device";
    site.stack = report.stacks.size() - 1;
    report.sites.push_back(site);
    return report.sites.back();
}

memlab::model::Steps steps_of(const std::string& verdict, double slope) {
    memlab::model::Steps steps;
    steps.kind = "scope";
    steps.name = "step";
    steps.steps = 100;
    steps.verdict = verdict;
    steps.trend.bytes_per_step = slope;
    steps.by_site = true;
    return steps;
}

Subject site(const std::string& text) {
    return {Subject::Kind::site, text};
}

Subject scope(const std::string& name) {
    return {Subject::Kind::scope, name};
}

}  // namespace

TEST_CASE("what lies exactly at its limit is kept") {
    const Run run({member_with_gpu(1000, 2000)});
    CHECK(run.verdict(limit_of(Metric::peak_allocated, "1000")) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::peak_allocated, "999")) == Verdict::exceeded);
    CHECK(run.verdict(limit_of(Metric::peak_reserved, "2000")) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::peak_reserved, "1999")) == Verdict::exceeded);
    CHECK(run.held_to({limit_of(Metric::peak_allocated, "1000")}).exit_code() == 0);
    CHECK(run.held_to({limit_of(Metric::peak_allocated, "999")}).exit_code() == 1);
}

TEST_CASE("reserved memory is shown, and a limit only when asked for") {
    const Run run({member_with_gpu(1000, 1ULL << 40)});
    const Outcome outcome = run.held_to({limit_of(Metric::peak_allocated, "1000")});
    CHECK(outcome.exit_code() == 0);
    REQUIRE(outcome.rows.size() == 2);
    CHECK(outcome.rows[1].metric == Metric::peak_reserved);
    CHECK(outcome.rows[1].verdict == Verdict::shown);
}

TEST_CASE("shares compare as they are written") {
    RunMember member = member_with_gpu(1, 1);
    member.report.devices[0].fragmentation.at_peak = 0.1;
    const Run run({member});
    CHECK(run.verdict(limit_of(Metric::fragmentation, "10%")) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::fragmentation, "0.1")) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::fragmentation, "9.9999%")) == Verdict::exceeded);
}

TEST_CASE("a metric that is asked for and not there is a problem, not a pass") {
    const Run run({member_with_gpu(1000, 2000)});
    for (const Limit& limit :
         {limit_of(Metric::fragmentation, "100%"), limit_of(Metric::growth, "1TiB"),
          limit_of(Metric::bypass, "1TiB"), limit_of(Metric::leaks, "1TiB", site("nowhere")),
          limit_of(Metric::peak_allocated, "1TiB", scope("nowhere")),
          limit_of(Metric::growth, "1TiB", scope("nowhere"))}) {
        const Outcome outcome = run.held_to({limit});
        CAPTURE(name_of(limit.metric, limit.subject));
        CHECK(outcome.exit_code() == 2);
        REQUIRE(outcome.problems.size() == 1);
        CHECK(outcome.problems[0].find(name_of(limit.metric, limit.subject)) == 0);
    }
    const Run empty({memlab::report::synthetic_member(1, 0, 0)});
    CHECK(empty.held_to({limit_of(Metric::peak_allocated, "1TiB")}).exit_code() == 2);
    CHECK(empty.held_to({limit_of(Metric::ooms, "0")}).exit_code() == 0);
    const Run nobody({});
    CHECK(nobody.held_to({limit_of(Metric::ooms, "0")}).exit_code() == 2);
}

TEST_CASE("every process is checked, and the one that fails is named") {
    RunMember small = member_with_gpu(10, 10, 1);
    RunMember large = member_with_gpu(30, 30, 2);
    small.report.process.ranks = {{"RANK", "0"}};
    large.report.process.ranks = {{"RANK", "1"}};
    const Run run({small, large});
    CHECK(run.processes[1].name == "rank 1");
    const Outcome outcome = run.held_to({limit_of(Metric::peak_allocated, "20")});
    CHECK(outcome.exit_code() == 1);
    CHECK(outcome.count(Verdict::kept) == 1);
    REQUIRE(outcome.count(Verdict::exceeded) == 1);
    for (const Row& row : outcome.rows) {
        CHECK((row.verdict != Verdict::exceeded || row.process == 1));
    }
    // A helper process without a GPU is neither a problem nor a pass.
    const Run with_helper({memlab::report::synthetic_member(3, 1, 3), large});
    CHECK(with_helper.held_to({limit_of(Metric::peak_allocated, "30")}).exit_code() == 0);
}

TEST_CASE("each GPU is held to the limit on its own") {
    RunMember member = member_with_gpu(10, 10);
    memlab::report::give_device(member, "GPU-b", 30, 30);
    const Run run({member});
    const Outcome outcome = run.held_to({limit_of(Metric::peak_allocated, "20")});
    CHECK(outcome.count(Verdict::kept) == 1);
    CHECK(outcome.count(Verdict::exceeded) == 1);
    ProcessOptions process_options;
    process_options.device = 0;
    const auto only = prepare_processes(run.collection, process_options);
    CHECK(check(only, {limit_of(Metric::peak_allocated, "20")}, {}).exit_code() == 0);
}

TEST_CASE("a recording with holes proves no limit kept, but one exceeded") {
    for (const int kind : {0, 1, 2, 3}) {
        RunMember member = member_with_gpu(1000, 1000);
        member.report.integrity.incomplete = kind == 0;
        member.report.log.damage = kind == 1 ? "The event log is damaged." : "";
        member.report.process.started_late = kind == 2;
        member.report.from_log = kind == 3;
        member.report.log.dropped = kind == 3 ? 5 : 0;
        const Run run({member});
        CAPTURE(kind);
        CHECK(run.held_to({limit_of(Metric::peak_allocated, "1000")}).exit_code() == 2);
        CHECK(run.held_to({limit_of(Metric::peak_allocated, "999")}).exit_code() == 1);
    }
    // The report written by the process is complete even if its log dropped events.
    RunMember whole = member_with_gpu(1000, 1000);
    whole.report.log.dropped = 5;
    CHECK(Run({whole}).held_to({limit_of(Metric::peak_allocated, "1000")}).exit_code() == 0);
}

TEST_CASE("sites are what matches, added up: leaks of every kind, all else device memory") {
    RunMember member = member_with_gpu(1000, 1000);
    give_site(member, "/lib/libone.so").live_bytes = 100;
    give_site(member, "/lib/libone.so.2").live_bytes = 11;
    give_site(member, "/lib/libtwo.so").live_bytes = 1000;
    memlab::model::Site& host = give_site(member, "/lib/libone.so");
    host.kind = "pinned";
    host.live_bytes = 5000;
    host.count = 9;
    const Run run({member});
    CHECK(run.verdict(limit_of(Metric::leaks, "5111", site("libone"))) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::leaks, "5110", site("libone"))) == Verdict::exceeded);
    CHECK(run.verdict(limit_of(Metric::leaks, "5000", site("kind=pinned"))) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::allocations, "0", site("libone"))) == Verdict::kept);
    const Outcome none = run.held_to({limit_of(Metric::allocations, "0", site("kind=pinned"))});
    REQUIRE(none.problems.size() == 1);
    CHECK(none.problems[0].find("limit it by its kind (allocations@kind:pinned)") !=
          std::string::npos);
    CHECK(run.verdict(limit_of(Metric::leaks, "11", site("module=libone.so.2"))) == Verdict::kept);
    const Outcome outcome = run.held_to({limit_of(Metric::leaks, "0", site("libone"))});
    REQUIRE(outcome.rows.back().measured.responsible.size() == 3);
    CHECK(outcome.rows.back().measured.responsible[0].figure == Figure::whole(5000));
}

TEST_CASE("a kind of memory with a limit of its own is not counted in the whole's") {
    RunMember member = member_with_gpu(1000, 1000);
    for (const auto& [kind, bytes] : {std::pair("device", 100), std::pair("pinned", 5000)}) {
        memlab::model::Site& site = give_site(member, "/lib/libmine.so");
        site.kind = kind;
        site.live_bytes = static_cast<std::uint64_t>(bytes);
        site.live_count = 1;
    }
    const Run run({member});
    const Limit whole = limit_of(Metric::leaks, "100");
    const Limit pinned = limit_of(Metric::leaks, "5000", {Subject::Kind::kind, "pinned"});
    CHECK(run.held_to({whole}).exit_code() == 1);
    CHECK(run.held_to({whole, pinned}).exit_code() == 0);
    CHECK(run.held_to({whole, limit_of(Metric::leak_count, "1", pinned.subject)}).exit_code() == 1);
    CHECK(run.held_to({limit_of(Metric::leaks, "0", {Subject::Kind::kind, "vmm"})}).exit_code() ==
          0);
}

TEST_CASE("what may stay is not a leak, unless its site is limited by name") {
    RunMember member = member_with_gpu(1000, 1000);
    for (const char* module : {"/lib/libcublas.so.13", "/lib/libmine.so"}) {
        memlab::model::Site& site = give_site(member, module);
        site.live_bytes = 100;
        site.live_count = 2;
    }
    member.report.devices[0].live.bytes = 200;
    member.report.devices[0].live.count = 4;
    const Run strict({member});
    CHECK(strict.verdict(limit_of(Metric::leaks, "199")) == Verdict::exceeded);
    const Run usual({member}, memlab::report::default_suppressions());
    CHECK(usual.verdict(limit_of(Metric::leaks, "100")) == Verdict::kept);
    CHECK(usual.verdict(limit_of(Metric::leaks, "99")) == Verdict::exceeded);
    CHECK(usual.verdict(limit_of(Metric::leak_count, "2")) == Verdict::kept);
    CHECK(usual.verdict(limit_of(Metric::leak_count, "1")) == Verdict::exceeded);
    CHECK(usual.verdict(limit_of(Metric::leaks, "99", site("cublas"))) == Verdict::exceeded);
    const Outcome outcome = usual.held_to({limit_of(Metric::leaks, "0")});
    CHECK(outcome.rows.back().measured.note.find("without 100 B that may stay") == 0);
    REQUIRE(outcome.rows.back().measured.responsible.size() == 1);
}

TEST_CASE("sums of hostile figures do not wrap around") {
    RunMember member = member_with_gpu(1000, 1000);
    give_site(member, "/lib/libone.so").live_bytes = ~0ULL;
    give_site(member, "/lib/libone.so").live_bytes = ~0ULL;
    CHECK(Run({member}).verdict(limit_of(Metric::leaks, "18446744073709551615", site("libone"))) ==
          Verdict::exceeded);
}

TEST_CASE("a scope is known by its path or its name, the worst of several counts") {
    RunMember member = member_with_gpu(1000, 1000);
    memlab::model::Scope outer;
    outer.name = "train";
    outer.peak_bytes = 50;
    memlab::model::Scope inner;
    inner.name = "step";
    inner.parent = 0;
    inner.peak_bytes = 70;
    inner.max_escaped_bytes = 8;
    memlab::model::Scope other = inner;
    other.parent.reset();
    other.peak_bytes = 90;
    member.report.scopes = {outer, inner, other};
    const Run run({member});
    CHECK(run.verdict(limit_of(Metric::peak_allocated, "70", scope("train/step"))) ==
          Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::peak_allocated, "69", scope("train/step"))) ==
          Verdict::exceeded);
    CHECK(run.verdict(limit_of(Metric::peak_allocated, "89", scope("step"))) == Verdict::exceeded);
    CHECK(run.verdict(limit_of(Metric::leaks, "8", scope("step"))) == Verdict::kept);
    CHECK(run.verdict(limit_of(Metric::leaks, "7", scope("step"))) == Verdict::exceeded);
}

TEST_CASE("growth is what the verdict on the steps says") {
    const auto verdict_of = [](const std::string& verdict, double slope, const char* limit,
                               Subject subject = {}) {
        RunMember member = member_with_gpu(1000, 1000);
        member.report.steps = {steps_of(verdict, slope)};
        return Run({member}).verdict(limit_of(Metric::growth, limit, std::move(subject)));
    };
    CHECK(verdict_of("steady", 3.5, "0") == Verdict::kept);  // within the noise
    CHECK(verdict_of("sawtooth", 900, "0") == Verdict::kept);
    CHECK(verdict_of("growing", 0.5, "0") == Verdict::exceeded);
    CHECK(verdict_of("growing", 512, "512") == Verdict::kept);
    CHECK(verdict_of("growing", 512.01, "512") == Verdict::exceeded);
    CHECK(verdict_of("growing", -3, "0") == Verdict::kept);
    CHECK(verdict_of("growing", 1, "0", scope("step")) == Verdict::exceeded);
    CHECK(verdict_of("growing", 1, "0", scope("train/step")) == Verdict::exceeded);
    CHECK(verdict_of("too few steps", 0, "1TiB") == Verdict::unknown);
}

TEST_CASE("what a file of suppressions names may grow, what libraries keep may not") {
    RunMember member = member_with_gpu(1000, 1000);
    give_site(member, "/lib/libcublas.so.13");
    give_site(member, "/lib/libone.so");
    member.report.steps = {steps_of("growing", 1540)};
    memlab::model::Steps& steps = member.report.steps.front();
    steps.growing = {{0, {512, 0, 0, 0, 0}}, {1, {1024, 0, 0, 0, 0}}};
    steps.growing_site_count = 2;
    const Run strict({member}, memlab::report::default_suppressions());
    CHECK(strict.verdict(limit_of(Metric::growth, "1539")) == Verdict::exceeded);
    const auto file =
        memlab::report::parse_suppressions("[a cache]\nreason = bounded\nmodule = libone.so\n");
    REQUIRE(file.problem.empty());
    const Run usual({member}, file.list);
    CHECK(usual.verdict(limit_of(Metric::growth, "512")) == Verdict::kept);
    CHECK(usual.verdict(limit_of(Metric::growth, "511")) == Verdict::exceeded);
    CHECK(usual.verdict(limit_of(Metric::growth, "1023", site("libone"))) == Verdict::exceeded);
    const Outcome outcome = usual.held_to({limit_of(Metric::growth, "0")});
    CHECK(outcome.rows.back().measured.note.find("without 1.00 KiB per step that may grow") !=
          std::string::npos);
    CHECK(outcome.rows.back().measured.responsible.size() == 1);
    // A growing site that is not listed counts with the remainder of the whole.
    steps.growing_site_count = 3;
    CHECK(Run({member}, file.list).verdict(limit_of(Metric::growth, "515")) == Verdict::exceeded);
    CHECK(Run({member}, file.list).verdict(limit_of(Metric::growth, "516")) == Verdict::kept);
}

TEST_CASE("a bypass is known when the audit was whole, or when one was seen") {
    RunMember member = member_with_gpu(1000, 1000);
    member.report.coverage.audited = true;
    CHECK(Run({member}).held_to({limit_of(Metric::bypass, "0")}).exit_code() == 0);
    member.report.coverage.lost_records = 1;
    CHECK(Run({member}).held_to({limit_of(Metric::bypass, "0")}).exit_code() == 2);
    member.report.coverage.audited = false;
    member.report.coverage.bypassed_count = 1;
    member.report.coverage.bypassed_bytes = 512;
    CHECK(Run({member}).held_to({limit_of(Metric::bypass, "0")}).exit_code() == 1);
    // One process without an audit makes the result unknown.
    RunMember audited = member_with_gpu(1, 1, 8);
    audited.report.coverage.audited = true;
    const Run two({member_with_gpu(1, 1, 9), audited});
    CHECK(two.held_to({limit_of(Metric::bypass, "0")}).exit_code() == 2);
}

TEST_CASE("out of memory is counted") {
    RunMember member = member_with_gpu(1000, 1000);
    member.report.oom_count = 2;
    CHECK(Run({member}).verdict(limit_of(Metric::ooms, "2")) == Verdict::kept);
    CHECK(Run({member}).verdict(limit_of(Metric::ooms, "1")) == Verdict::exceeded);
}

TEST_CASE("a name is the same from run to run") {
    RunMember python = member_with_gpu(1, 1, 1);
    python.report.process.executable = "/usr/bin/python3.12";
    python.report.process.arguments = {"python3", "-u", "src/train.py", "--lr", "1"};
    RunMember again = python;
    again.report.process.pid = 2;
    const Run run({python, again});
    CHECK(run.processes[0].name == "train.py");
    CHECK(run.processes[1].name == "train.py #2");
}

TEST_CASE("the imbalance of ranks is the largest peak above the mean") {
    std::vector<RunMember> members = {member_with_gpu(100, 100, 1), member_with_gpu(140, 140, 2)};
    members[0].report.process.ranks = {{"RANK", "0"}};
    members[1].report.process.ranks = {{"RANK", "1"}};
    const Run run(members);
    Options options;
    options.ranks = memlab::report::ranks_of(run.collection);
    const auto judge = [&](const char* bound) {
        return run.held_to({limit_of(Metric::rank_imbalance, bound)}, options);
    };
    CHECK(judge("17%").exit_code() == 0);
    const Outcome exceeded = judge("16%");  // 140 is 16.7 % above 120
    CHECK(exceeded.exit_code() == 1);
    REQUIRE(!exceeded.rows.empty());
    const auto row = std::find_if(exceeded.rows.begin(), exceeded.rows.end(),
                                  [](const Row& each) { return each.limit.has_value(); });
    CHECK(row->process == 0);
    CHECK(row->measured.note == "rank 1 peaks at 140 B, the mean is 120 B");
    CHECK(judge("+5%").exit_code() == 2);  // a baseline has no figure of a run

    // Whether it is kept is not known without the end of each rank.
    members[1].report.process.ended = "cut off";
    const Run cut(members);
    options.ranks = memlab::report::ranks_of(cut.collection);
    CHECK(cut.verdict(limit_of(Metric::rank_imbalance, "17%"), options) == Verdict::unknown);
    CHECK(cut.verdict(limit_of(Metric::rank_imbalance, "1%"), options) == Verdict::unknown);

    CHECK(Run({member_with_gpu(1, 1)})
              .held_to({limit_of(Metric::rank_imbalance, "1%")})
              .exit_code() == 2);
}
