// Recordings in folders: real ones, copies, damaged files.
#include "report/runs/collection.hpp"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "report/runs/render.hpp"
#include "report/runs/run_facts.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/temporary_folder.hpp"

using namespace memlab::model;

using namespace memlab::report;
using memlab::test::TemporaryFolder;

namespace {

namespace fs = std::filesystem;

const fs::path data = MEMLAB_TEST_DATA;

std::string run_file(const std::string& processes) {
    return R"({"format":"memlab-run","version":1,"memlab_version":"0.1.0","host":"vm","pid":9,)"
           R"("command":["x"],"directory":"/","start_wall_ns":1,"end_wall_ns":2,"command_pid":10,)"
           R"("signal":null,"exit_code":0,"replaced":{"A":"1"},"processes":[)" +
           processes + R"(],"ancestors":[{"pid":3,"parent_pid":2,"command":"sh"}]})";
}

/// Of a process, what the tests do not look at.
const std::string other_members =
    R"("parent_pid":1,"executable":"/x","host":"vm","duration_ns":1,"signal":null,)"
    R"("exit_code":null,"ranks":{})";

void write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

TEST_CASE("a report and its log are one recording; a log alone is read") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    for (const char* name :
         {"sample_oom_recovery.json", "sample_oom_recovery.memlog", "cut_off_by_exec.memlog"}) {
        fs::copy_file(data / "h100" / name, root / name);
    }
    write(root / "notes.json", "{\"something\": \"else\"}");
    write(root / "readme.txt", "hello");
    const RunCollection run = collect_run({root.string()});
    CHECK(run.errors.empty());
    CHECK(run.notes.empty());
    REQUIRE(run.members.size() == 2);
    CHECK(run.members[0].from_log != run.members[1].from_log);
}

TEST_CASE("a damaged report is replaced by its log, a copy is left out, and both are said") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    fs::copy_file(data / "h100/sample_oom_recovery.memlog", root / "a.memlog");
    write(root / "a.json", "{\"format\":\"memlab-report\",\"version\":1,");
    fs::copy_file(data / "h100/sample_oom_recovery.json", root / "b.json");
    write(root / "c.json", "{\"format\":\"memlab-report\",");
    const RunCollection run = collect_run({root.string()});
    REQUIRE(run.members.size() == 1);
    CHECK(run.members[0].from_log);
    REQUIRE(run.notes.size() == 2);
    CHECK(run.notes[0].find("its log was read instead") != std::string::npos);
    CHECK(run.notes[1].find("b.json holds process") != std::string::npos);
    REQUIRE(run.errors.size() == 1);
    CHECK(run.errors[0].first == (root / "c.json").string());
}

TEST_CASE("an empty folder, a missing one and files that are nothing are one line each") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    write(root / "x.txt", "hello");
    const RunCollection run =
        collect_run({root.string(), (root / "missing").string(), (root / "x.txt").string()});
    CHECK(run.members.empty());
    REQUIRE(run.errors.size() == 3);
    CHECK(run.errors[0].second.find("holds no report and no event log") == 0);
    CHECK(run.errors[1].second.find("no such file") == 0);
    CHECK(run.errors[2].second.find("neither a memlab report nor an event log") == 0);
}

TEST_CASE("what memlab-run wrote goes to the members it means") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    fs::copy_file(data / "h100/sample_oom_recovery.json", root / "a.json");
    const RunCollection alone = collect_run({root.string()});
    REQUIRE(alone.members.size() == 1);
    const Process& process = alone.members[0].report.process;
    std::ostringstream known;
    known << "{\"pid\":" << process.pid << ",\"start_wall_ns\":" << process.start_wall_ns
          << R"(,"start_ticks":77,"recovered":true,"ended":"cut off","held_bytes":null,)"
          << R"("arguments":["y"],"report":"a.json","log":null,)" << other_members << "}";
    const std::string gone =
        R"({"pid":555,"start_wall_ns":1,"start_ticks":0,"recovered":false,"ended":"running",)"
        R"("held_bytes":12,"arguments":["z"],"report":null,"log":"z.memlog",)" +
        other_members + "}";
    std::string text = run_file(known.str() + "," + gone);
    text.replace(text.find("\"vm\""), 4, "\"" + process.host + "\"");
    write(root / "memlab-run.json", text);
    const RunCollection run = collect_run({root.string()});
    CHECK(run.errors.empty());
    REQUIRE(run.runs.size() == 1);
    CHECK(run.runs[0].ancestors.at(0).command == "sh");
    CHECK(run.runs[0].replaced.at("A") == "1");
    CHECK(run.runs[0].exit_code == 0);
    REQUIRE(run.members.size() == 1);
    CHECK(run.members[0].start_ticks == 77);
    CHECK(run.members[0].from_log);
    CHECK(run.notes.empty());
    REQUIRE(run.lacks.size() == 1);
    CHECK(run.lacks[0].kind == Lack::Kind::processes);
    CHECK(run.lacks[0].text.find(
              "names process 555 (z), but neither its report nor its log is here") !=
          std::string::npos);
    CHECK(all_notes(run) == std::vector{run.lacks[0].text});

    SECTION("a container has another name than its host") {
        text.replace(text.find("\"" + process.host + "\""), process.host.size() + 2, "\"vm\"");
        write(root / "memlab-run.json", text);
        const RunCollection elsewhere = collect_run({root.string()});
        CHECK(elsewhere.members[0].start_ticks == 77);
        CHECK(elsewhere.lacks.size() == 1);
    }
}

TEST_CASE("a rank that the launcher promised is missing, a restarted one is not") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    std::ifstream file(data / "h100/sample_oom_recovery.json");
    auto report = nlohmann::ordered_json::parse(file);
    const auto add = [&](int rank, int pid, int size) {
        report["process"]["pid"] = pid;
        report["process"]["ranks"] = {{"RANK", std::to_string(rank)},
                                      {"WORLD_SIZE", std::to_string(size)}};
        write(root / ("memlab.train." + std::to_string(pid) + ".json"), report.dump());
    };
    add(0, 10, 3);
    add(2, 12, 3);
    const auto lacks = [&] { return collect_run({root.string()}).lacks; };
    REQUIRE(lacks().size() == 1);
    CHECK(lacks()[0].kind == Lack::Kind::ranks);
    CHECK(lacks()[0].text == "1 of 3 ranks is missing: 1.");
    CHECK(collect_run({root.string()}, Keep::totals).lacks.size() == 1);
    add(1, 21, 3);  // after an elastic restart, with the others again
    add(0, 20, 3);
    CHECK(lacks().empty());
    add(0, 30, 1);  // one that shrank
    CHECK(lacks().empty());
}

TEST_CASE("a run file is read whole or not at all") {
    const std::string good = run_file("");
    RunFacts facts;
    std::string error;
    REQUIRE(parse_run_facts(good, &facts, &error));
    for (std::size_t length = 0; length < good.size(); ++length) {
        RunFacts part;
        CHECK_FALSE(parse_run_facts(std::string_view(good).substr(0, length), &part, &error));
        CHECK_FALSE(error.empty());
    }
    std::string later = good;
    later.replace(later.find("\"version\":1"), 11, "\"version\":2");
    CHECK_FALSE(parse_run_facts(later, &facts, &error));
    CHECK(error.find("has format version 2") == 0);
    CHECK(document_format(good) == "memlab-run");
    CHECK(document_format("{\n  \"format\": \"memlab-merge\",") == "memlab-merge");
    CHECK(document_format("[1]").empty());
    CHECK(document_format("").empty());
}

TEST_CASE("totals of reports, and the peaks of their stacks, are those of whole reports") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    for (const char* name : {"sample_oom_recovery.memlog", "cut_off_by_exec.memlog"}) {
        fs::copy_file(data / "h100" / name, root / name);
    }
    const RunCollection whole = collect_run({root.string()});
    const RunCollection totals = collect_run({root.string()}, Keep::totals);
    RunCollection stacks = collect_run({root.string()}, Keep::totals_and_stacks);
    REQUIRE(whole.members.size() == 2);
    REQUIRE(totals.members.size() == 2);
    REQUIRE(stacks.members.size() == 2);
    std::size_t peaks = 0;
    for (std::size_t i = 0; i < whole.members.size(); ++i) {
        const Report& report = whole.members[i].report;
        CHECK(totals.members[i].report.sites.empty());
        CHECK(totals.members[i].report.devices.size() == report.devices.size());
        CHECK(read_whole(totals.members[i]) == report);
        for (const StackPeak& peak : stacks.members[i].stack_peaks) {
            std::uint64_t bytes = 0;
            for (const Site& site : report.sites) {
                bytes +=
                    site.stack == peak.stack && site.kind == stacks.stack_numbers->kind(peak.number)
                        ? site.peak_bytes
                        : 0;
            }
            CHECK(peak.bytes == bytes);
            ++peaks;
        }
        const auto same = stacks.stack_numbers->peaks_of(report);
        CHECK(same.size() == stacks.members[i].stack_peaks.size());
    }
    CHECK(peaks != 0);
    CHECK(render_run_json(view_run("run", collect_run({root.string()}))) ==
          render_run_json(view_run("run", collect_run({root.string()}, Keep::totals))));
}

TEST_CASE("a member whose file is gone still has its stacks, without frames") {
    const TemporaryFolder folder;
    const fs::path root = folder.path();
    fs::copy_file(data / "h100/sample_oom_recovery.memlog", root / "a.memlog");
    const RunCollection run = collect_run({root.string()}, Keep::totals_and_stacks);
    fs::remove(root / "a.memlog");
    const Report report = read_whole(run.members.at(0));
    CHECK(report.process == run.members[0].report.process);
    REQUIRE_FALSE(run.members[0].stack_peaks.empty());
    CHECK(report.stacks.size() > run.members[0].stack_peaks.back().stack);
}
