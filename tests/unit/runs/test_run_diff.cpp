// Comparison of two runs of several processes: matching and sums.
#include "report/runs/run_diff.hpp"

#include <deque>
#include <limits>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/unit/runs/synthetic_member.hpp"
#include "tests/unit/views/synthetic_report.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

RunMember process(std::uint64_t pid, const std::string& executable,
                  const std::vector<std::string>& arguments = {}) {
    RunMember member = synthetic_member(pid, 1, 1000 + pid);
    member.report.process.executable = executable;
    member.report.process.arguments = arguments;
    return member;
}

/// A process that holds `forward` bytes in one place and a MiB in another at its peak.
RunMember training(std::uint64_t pid, std::uint64_t forward,
                   std::optional<std::uint64_t> rank = std::nullopt) {
    SyntheticReport made;
    made.site({"forward", "step"}, forward);
    made.site({"load", "main"}, mib);
    RunMember member = process(pid, "/opt/train");
    made.report.process = member.report.process;
    member.report = std::move(made.report);
    Device& device = member.report.devices[0];
    device.uuid = "GPU-" + std::to_string(pid);
    device.curves[static_cast<std::size_t>(Curve::allocated)] = CurveSummary{forward + mib, 0, 0};
    device.curves[static_cast<std::size_t>(Curve::reserved)] = CurveSummary{2 * forward, 0, 0};
    if (rank) {
        member.report.process.ranks = {{"RANK", std::to_string(*rank)}};
    }
    return member;
}

RunCollection run_of(std::vector<RunMember> members) {
    RunCollection run;
    run.members = std::move(members);
    return run;
}

/// "12-34 -35 13-": the process ids of each pair.
std::string pids(const RunCollection& before, const RunCollection& after) {
    std::string text;
    for (const ProcessPair& pair : match_processes(before, after).pairs) {
        text += text.empty() ? "" : " ";
        if (pair.before != no_member) {
            text += std::to_string(before.members[pair.before].report.process.pid);
        }
        text += "-";
        if (pair.after != no_member) {
            text += std::to_string(after.members[pair.after].report.process.pid);
        }
    }
    return text;
}

/// Two runs, ready to be compared.
class Compared {
  public:
    Compared(std::vector<RunMember> before, std::vector<RunMember> after, DiffOptions options = {})
        : options_(std::move(options)),
          before_(view_run("a/", run_of(std::move(before)))),
          after_(view_run("b/", run_of(std::move(after)))) {
        options_.style.ascii = true;
        diff = diff_runs({before_, sides(before_)}, {after_, sides(after_)}, options_);
    }

    std::string text() const { return render_run_diff_text(before_, after_, diff, options_); }
    nlohmann::json json() const {
        return nlohmann::json::parse(render_run_diff_json(before_, after_, diff, options_));
    }
    bool says(const std::string& line) const { return text().find(line) != std::string::npos; }

    Change total(const std::string& member) const {
        for (const DiffTotal& total : diff.totals) {
            if (total.member == member) {
                return total.change;
            }
        }
        FAIL("no total " + member);
        return {};
    }

    RunDiff diff;

  private:
    std::function<DiffSide(std::size_t)> sides(const RunView& view) {
        return [this, &view](std::size_t index) {
            const RunMember& member = view.collection.members[index];
            Resolver& resolver = resolvers_.emplace_back(member.report, nullptr);
            return DiffSide{member.file, member.report, resolver,
                            std::vector<bool>(member.report.sites.size(), true)};
        };
    }

    DiffOptions options_;
    RunView before_;
    RunView after_;
    std::deque<Resolver> resolvers_;
};

}  // namespace

TEST_CASE("ranks are paired whatever their programs are called and when they started") {
    const RunCollection before = run_of({training(10, mib, 1), training(11, mib, 0)});
    RunCollection after =
        run_of({training(20, mib, 0), training(21, mib, 1), training(22, mib, 2)});
    for (RunMember& member : after.members) {
        member.report.process.executable = "/opt/train_new";
    }
    CHECK(match_processes(before, after).by_rank);
    CHECK(pids(before, after) == "11-20 10-21 -22");
    CHECK(pids(after, before) == "20-11 21-10 22-");
}

TEST_CASE("the largest process stands for its rank, and its helpers are paired among themselves") {
    RunMember helper = process(9, "/opt/loader");
    helper.report.process.ranks = {{"RANK", "0"}};
    RunMember other = process(21, "/opt/loader");
    other.report.process.ranks = {{"RANK", "0"}};
    RunMember stranger = process(22, "/opt/loader");
    stranger.report.process.ranks = {{"RANK", "1"}};
    const RunCollection before = run_of({helper, training(10, mib, 0)});
    const RunCollection after = run_of({training(20, mib, 0), other, stranger});
    CHECK(pids(before, after) == "10-20 9-21 -22");
    CHECK(match_processes(before, after).pairs[0].stands_for_rank);
    CHECK_FALSE(match_processes(before, after).pairs[1].stands_for_rank);
}

TEST_CASE("without ranks it is the program and the order of start") {
    const RunCollection before = run_of({process(1, "/opt/prepare"), process(2, "/opt/train"),
                                         process(3, "/opt/train"), process(4, "/opt/clean")});
    const RunCollection after = run_of({process(11, "/new/train"), process(12, "/new/prepare"),
                                        process(13, "/new/train"), process(14, "/new/train")});
    CHECK_FALSE(match_processes(before, after).by_rank);
    CHECK(pids(before, after) == "2-11 1-12 3-13 -14 4-");
}

TEST_CASE("scripts are programs; an interpreter's others are paired by what is left") {
    const auto python = [](std::uint64_t pid, const std::vector<std::string>& arguments) {
        return process(pid, "/usr/bin/python3.12", arguments);
    };
    const RunCollection before =
        run_of({python(1, {"python3", "prepare.py"}), python(2, {"python3", "train.py"}),
                python(3, {"python3", "-c", "spawn"})});
    const RunCollection after = run_of({python(11, {"python3", "-u", "/src/train.py", "--fast"}),
                                        python(12, {"python3", "/src/prepare_anew.py"}),
                                        python(13, {"python3", "-c", "x"})});
    CHECK(pids(before, after) == "2-11 1-12 3-13");
    CHECK(program_name(python(1, {"python3", "-X", "dev", "a/b.py"}).report.process) == "b.py");
    CHECK(program_name(python(1, {"python3", "-m", "pack.train"}).report.process) == "pack.train");
    CHECK(program_name(python(1, {}).report.process) == "python3.12");
    CHECK(program_name(process(1, "/opt/train", {"train", "x.py"}).report.process) == "train");
}

TEST_CASE("a rank or a process that is asked for") {
    const RunCollection before = run_of({training(10, mib, 0), training(11, mib, 1)});
    const RunCollection after =
        run_of({training(11, mib, 0), training(21, mib, 1), training(22, mib, 2)});
    const ProcessMatching matching = match_processes(before, after);
    std::string problem;
    REQUIRE(find_rank_pair(before, after, matching, 1, &problem));
    CHECK(find_rank_pair(before, after, matching, 1, &problem)->after == 1);
    CHECK_FALSE(find_rank_pair(before, after, matching, 2, &problem));
    CHECK(problem == "rank 2 is in AFTER alone; memlab-report memlab.x.22.json shows it");
    CHECK_FALSE(find_rank_pair(before, after, matching, 7, &problem));
    CHECK(problem.starts_with("rank 7 is in neither run; "));

    // An id that occurs in both runs refers to AFTER.
    REQUIRE(find_process_pair(before, after, matching, "11", &problem));
    CHECK(find_process_pair(before, after, matching, "11", &problem)->rank == 0);
    CHECK(find_process_pair(before, after, matching, "10", &problem)->rank == 0);
    CHECK_FALSE(find_process_pair(before, after, matching, "12", &problem));
    CHECK(problem.starts_with("process 12 is in neither run; "));
    CHECK_FALSE(find_process_pair(before, after, matching, "train", &problem));
    CHECK(problem == "2 pairs of processes are called train; name one by its process id: 11, 21");

    const RunCollection plain = run_of({process(1, "/opt/a"), process(2, "/opt/b")});
    const RunCollection more = run_of({process(3, "/opt/b"), process(4, "/opt/c")});
    const ProcessMatching programs = match_processes(plain, more);
    CHECK(find_process_pair(plain, more, programs, "b", &problem)->before == 1);
    CHECK_FALSE(find_process_pair(plain, more, programs, "a", &problem));
    CHECK(problem == "process a is in BEFORE alone; memlab-report memlab.x.1.json shows it");
    CHECK_FALSE(find_rank_pair(plain, more, programs, 0, &problem));
    CHECK(problem.starts_with("not both runs have ranks; "));
}

TEST_CASE("processes and call sites are added up, the largest change first") {
    const Compared runs({training(10, 4 * mib, 0), training(11, 4 * mib, 1)},
                        {training(20, 5 * mib, 0), training(21, 7 * mib, 1)});
    REQUIRE(runs.diff.processes.size() == 2);
    CHECK(runs.diff.processes[0].pair.rank == 1);
    CHECK(runs.diff.processes[0].change == Change{5 * mib, 8 * mib});
    CHECK(runs.diff.change == Change{10 * mib, 14 * mib});
    CHECK(runs.total("allocated_peak_bytes") == Change{10 * mib, 14 * mib});
    CHECK(runs.total("reserved_peak_bytes") == Change{16 * mib, 24 * mib});
    CHECK(runs.total("gpu_allocated_peak_bytes") == Change{5 * mib, 8 * mib});
    CHECK(runs.total("processes") == Change{2, 2});
    REQUIRE(runs.diff.sites.sites.size() == 1);
    CHECK(runs.diff.sites.sites[0].before.peak_bytes == 8 * mib);
    CHECK(runs.diff.sites.sites[0].after.peak_bytes == 12 * mib);
    CHECK(runs.diff.sites.unchanged == 1);
    CHECK(runs.says("Run  2 pairs, by rank\n"));
    CHECK(runs.says("      +3.00 MiB   +60.0%    5.00 MiB    8.00 MiB  rank 1: train\n"));
    CHECK(runs.says("      +4.00 MiB   +40.0%   10.00 MiB   14.00 MiB  [total]\n"));
    CHECK(runs.says("By call stack  peak, of the 2 pairs together\n"));
    CHECK(runs.says("      +4.00 MiB   +50.0%  /src/forward.py:1  forward <- step\n"));
    CHECK(runs.diff.notes.empty());
}

TEST_CASE("a process without a partner is told, and its sites are not") {
    const Compared runs({training(10, 4 * mib, 0)},
                        {training(20, 4 * mib, 0), training(21, 9 * mib, 1)});
    CHECK(runs.diff.added == 1);
    CHECK(runs.diff.gone == 0);
    CHECK(runs.diff.sites.sites.empty());
    CHECK(runs.says("Run  1 pair, by rank, 1 new\n"));
    CHECK(runs.says("     +10.00 MiB      new           -   10.00 MiB  rank 1: train\n"));
    CHECK(runs.says("     +10.00 MiB  +200.0%    5.00 MiB   15.00 MiB  [total; 1 unchanged]\n"));
    REQUIRE(runs.diff.notes.size() == 1);
    CHECK(runs.diff.notes[0].starts_with("1 process has no partner: "));
    const auto json = runs.json();
    CHECK(json["processes"][0]["before"].is_null());
    CHECK(json["processes"][0]["after"]["pid"] == 21);
    CHECK(json["processes"][0]["rank"] == 1);
    CHECK(json["processes"][0]["change"] == 10 * mib);

    const Compared back({training(20, 4 * mib), training(21, 0)}, {training(10, 4 * mib)});
    CHECK(back.says("     -1.00 MiB     gone    1.00 MiB           -  train  (pid 21)\n"));
    const Compared strangers({process(1, "/opt/a")}, {process(2, "/opt/b")});
    CHECK(strangers.diff.pairs == 0);
    CHECK_FALSE(strangers.says("By call stack"));
}

TEST_CASE("what --top leaves out is summed up") {
    DiffOptions options;
    options.top = 1;
    const Compared runs(
        {training(10, mib, 0), training(11, mib, 1), training(12, mib, 2), training(13, mib, 3)},
        {training(20, 9 * mib, 0), training(21, 2 * mib, 1), training(22, 3 * mib, 2),
         training(23, mib, 3)},
        options);
    CHECK(runs.says("      +3.00 MiB   +75.0%    4.00 MiB    7.00 MiB  [2 others]\n"));
    CHECK(runs.says("     +11.00 MiB  +137.5%    8.00 MiB   19.00 MiB  [total; 1 unchanged]\n"));
    CHECK(runs.json()["processes"].size() == 4);
}

TEST_CASE("by count processes are counted, too") {
    DiffOptions options;
    options.order = Order::count;
    RunMember more = training(21, 4 * mib, 1);
    more.report.sites[1].count = 1001;
    const Compared runs({training(10, 4 * mib, 0), training(11, 4 * mib, 1)},
                        {training(20, 5 * mib, 0), more}, options);
    CHECK(runs.says("         +1,000                    2       1,002  rank 1: train\n"));
    CHECK(runs.says("[total; 1 unchanged]"));
}

TEST_CASE("one GPU of each process") {
    const auto with_second = [](RunMember member, std::uint64_t bytes) {
        Device second = member.report.devices[0];
        second.index = 1;
        second.curves[static_cast<std::size_t>(Curve::allocated)]->peak_bytes = bytes;
        member.report.devices.push_back(second);
        Site site = member.report.sites[0];
        site.device = 1;
        site.at_peak_bytes = bytes;
        member.report.sites.push_back(site);
        return member;
    };
    DiffOptions options;
    options.device = 1;
    const Compared runs({with_second(training(10, 4 * mib, 0), mib)},
                        {with_second(training(20, 9 * mib, 0), 3 * mib), training(21, mib, 1)},
                        options);
    CHECK(runs.total("allocated_peak_bytes") == Change{mib, 3 * mib});
    CHECK_FALSE(runs.diff.peaks_at_once);
    REQUIRE(runs.diff.sites.sites.size() == 1);
    CHECK(runs.diff.sites.after.peak_bytes == 3 * mib);
    CHECK(runs.says("1 pair, by rank, 1 new, GPU 1 of each\n"));
    CHECK(runs.json()["device"] == 1);
}

TEST_CASE("what several held of a GPU at once, where it is known exactly") {
    // Two recordings of one GPU without timelines: their peaks may coincide or not.
    RunMember one = training(10, 4 * mib);
    RunMember other = training(11, 2 * mib);
    other.report.devices[0].uuid = one.report.devices[0].uuid;
    for (RunMember* member : {&one, &other}) {
        Timeline& timeline = member->report.devices[0].timeline;
        timeline.bucket_ns = 1000;
        TimelineRow row;
        for (const Curve curve : {Curve::allocated, Curve::reserved}) {
            const std::uint64_t peak = member->report.devices[0].curve(curve).peak_bytes;
            row.curves.at(static_cast<std::size_t>(curve)) = TimelineRow::Values{0, peak, 0};
        }
        timeline.rows.push_back(row);
    }
    const Compared runs({one, other}, {training(20, 4 * mib), training(21, 2 * mib)});
    CHECK_FALSE(runs.diff.peaks_at_once);
    CHECK(runs.json()["totals"]["gpu_allocated_peak_bytes"].is_null());
    REQUIRE(runs.diff.notes.size() == 1);
    CHECK(runs.diff.notes[0].starts_with("What the fullest GPU held at once is left out"));
}

TEST_CASE("what makes a run less than exact is said") {
    RunMember early = training(20, 4 * mib, 0);
    early.report.process.ended = "cut off";
    early.report.log.dropped = 3;
    early.lacks = find_lacks(early.report);
    RunMember plain = training(21, 4 * mib);
    const auto notes =
        Compared({training(10, 4 * mib), training(11, mib)}, {early, plain}).diff.notes;
    REQUIRE(notes.size() == 3);
    CHECK(notes[0] == "Only b/ has ranks: processes are paired by program and start.");
    CHECK(notes[1] ==
          "b/: 1 of 2 processes did not end by itself (rank 0: train): figures are those "
          "until then.");
    CHECK(notes[2].starts_with("memlab.x.20.json: The recording stopped at the latest after "));
    CHECK(notes[2].find("lacks 3 later events") != std::string::npos);
}

TEST_CASE("sums of runs stop at the largest number") {
    constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    const Compared runs({training(10, mib, 0), training(11, mib, 1)},
                        {training(20, most - mib, 0), training(21, most - mib, 1)});
    CHECK(runs.diff.change.after == most);
    CHECK(runs.total("allocated_peak_bytes").after == most);
    CHECK(runs.json()["totals"]["allocated_peak_bytes"]["change"].is_null());
}

TEST_CASE("what a recording says of a process cannot harm a terminal, nor break the table") {
    RunMember evil = training(21, 2 * mib);
    evil.report.process.arguments = {"\x1b[31mtrain\n", std::string(300, 'x')};
    const Compared runs({training(10, mib)}, {evil});
    REQUIRE(runs.text().find("(pid 21)") != std::string::npos);
    CHECK(runs.text().find('\x1b') == std::string::npos);
    std::istringstream lines(runs.text());
    for (std::string line; std::getline(lines, line);) {
        CHECK(line.size() <= 80);
    }
}
