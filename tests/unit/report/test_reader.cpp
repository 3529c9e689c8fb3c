// Reading untrusted reports. Every invalid input gives one line that says what is wrong and what to
// do; no input makes the reader, or a view of its result, crash.
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "model/json_writer.hpp"
#include "report/reading/reader.hpp"
#include "report/reading/table_text.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/stack_text.hpp"
#include "report/summary/summary.hpp"
#include "report/symbols/resolver.hpp"
#include "tests/catch.hpp"
#include "trace/aggregate/aggregator.hpp"
#include "trace/log_writer.hpp"

using namespace memlab;
using nlohmann::json;

namespace {

constexpr std::uint64_t mib = 1 << 20;

/// A recording with an example of everything that a report can contain.
void record(trace::RecordSink& sink) {
    trace::ProcessInfo process;
    process.pid = 42;
    process.executable = "/opt/app/train";
    process.arguments = {"train"};
    process.ranks = {{"RANK", "1"}};
    sink.on(process);
    sink.on(trace::OptionValue{"MEMLAB_POOL", "on"});
    sink.on(trace::DeviceInfo{0, "GPU", "GPU-0", 100 * mib, 13000});
    sink.on(trace::ContextInfo{1, 0, true});
    sink.on(trace::StringDef{1, "cuMemAlloc_v2"});
    sink.on(trace::StringDef{2, "start"});
    sink.on(trace::StringDef{3, "loader"});
    sink.on(trace::ThreadInfo{7, 3});
    sink.on(trace::ModuleDef{1, "/opt/app/train", "ab12", 0, 0x1000, 0x2000});
    sink.on(trace::StackDef{1, false, {{1, 0x1234}, {0, 0x99}}});
    trace::Event event;
    event.type = trace::EventType::mark;
    event.name = 2;
    sink.on(event);
    event = {};
    event.context = 1;
    event.api = 1;
    event.stack = 1;
    event.time_ns = 1000;
    event.address = 0x7000;
    event.requested = 3 * mib;
    event.size = 3 * mib;
    sink.on(event);
    event.address = 0x9000000;
    sink.on(event);
    event.type = trace::EventType::free_requested;
    event.time_ns = 2000;
    sink.on(event);
    event.thread = 7;
    for (std::uint64_t step = 0; step < 20; ++step) {
        event.type = trace::EventType::scope_begin;
        event.name = 2;
        event.address = event.requested = event.size = 0;
        sink.on(event);
        event.type = trace::EventType::alloc;
        event.name = 0;
        event.address = 0x10000000 + step * 512;
        event.requested = event.size = 512;
        sink.on(event);
        event.type = trace::EventType::label;
        event.name = 2;
        sink.on(event);
        event.type = trace::EventType::scope_end;
        event.address = event.requested = event.size = 0;
        sink.on(event);
    }
    sink.on(event);  // without its start
    trace::OomEvent oom;
    oom.time_ns = 3000;
    oom.context = 1;
    oom.api = 1;
    oom.stack = 1;
    oom.requested = 200 * mib;
    oom.device_total = 100 * mib;
    oom.error = 2;
    sink.on(oom);
    sink.on(trace::DeviceSample{4000, 0, 50 * mib, 100 * mib});
    sink.on(trace::Missed{5000, 2, 1, 10});
    sink.on(trace::End{6000, trace::EndKind::exit, 0, ""});
}

std::string valid_report() {
    static const std::string text = [] {
        trace::Aggregator aggregator;
        record(aggregator);
        return model::report_to_string(aggregator);
    }();
    return text;
}

/// Runs everything that the tools do with a report, except symbolization.
std::size_t show(const model::Report& report) {
    report::Resolver resolver(report, nullptr);
    const report::Summary summary = report::summarize("file", report, resolver);
    report::TextOptions options;
    options.stacks = 3;
    return report::render_text(summary, resolver, options).size() +
           report::render_short(summary, options).size() +
           report::render_json(summary, resolver, 10).size();
}

class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::string name = "/tmp/memlab-reader.XXXXXX";
        REQUIRE(mkdtemp(name.data()) != nullptr);
        path_ = name;
    }
    ~TemporaryFolder() {
        for (const std::string& file : files_) {
            unlink(file.c_str());
        }
        rmdir(path_.c_str());
    }
    std::string file(const std::string& name, const std::string& content) {
        std::ofstream(path(name), std::ios::binary) << content;
        return files_.back();
    }
    std::string path(const std::string& name) {
        files_.push_back(path_ + "/" + name);
        return files_.back();
    }
    const std::string& folder() const { return path_; }

  private:
    std::string path_;
    std::vector<std::string> files_;
};

}  // namespace

TEST_CASE("what the writer writes, the reader reads") {
    const auto read = report::parse_report(valid_report());
    CHECK(read.error.empty());
    REQUIRE(read.report);
    const model::Report& report = *read.report;
    CHECK(report.process.pid == 42);
    CHECK(report.process.ended == "exit");
    CHECK(report.process.ranks.at("RANK") == "1");
    CHECK(*report.thread_name(7) == "loader");
    CHECK(report::thread_text(report, 7) == "thread 7 (loader)");
    CHECK(report::thread_text(report, 42) == "thread 42 (main)");
    CHECK(report::thread_text(report, 8) == "thread 8");
    REQUIRE(report.devices.size() == 1);
    CHECK(report.devices[0].curve(model::Curve::allocated).peak_bytes == 6 * mib);
    CHECK(report.devices[0].curve(model::Curve::device_used).peak_bytes == 50 * mib);
    CHECK(report.devices[0].live.bytes == 3 * mib + 20 * 512);
    REQUIRE(report.ooms.size() == 1);
    CHECK(report.ooms[0].error == 2);
    CHECK(report.ooms[0].explanation.size() > 1);
    CHECK(report.marks.at(0).name == "start");
    CHECK(report.missed.at(0).bytes == 10);
    REQUIRE(report.scopes.size() == 1);
    CHECK_FALSE(report.scopes[0].parent);
    CHECK(report.scopes[0].name == "start");
    CHECK(report.scopes[0].entries == 20);
    CHECK(report.scopes[0].escaped.bytes == 20 * 512);
    CHECK(report.scopes[0].escaped.sites.at(0).count == 20);
    CHECK(report.scopes[0].max_escaped_bytes == 512);
    CHECK(report.unbalanced_scopes.ends_without_begin == 1);
    REQUIRE(report.steps.size() == 1);
    CHECK(report.steps[0].steps == 20);
    CHECK(report.steps[0].verdict == "growing");
    CHECK(report.steps[0].trend.bytes_per_step == Approx(512));
    CHECK(report.steps[0].growing.at(0).site == 0);
    CHECK(report.labels.at(0).live_count == 20);
    CHECK(report.largest_live.at(0).bytes == 3 * mib);
    CHECK(report.largest_live.at(1).label == "start");
    CHECK(report.frames.at(report.stacks.at(1).frames.at(0)).address == 0x1234);
    std::uint64_t highest = 0;
    for (const auto& row : report.devices[0].timeline.rows) {
        highest = std::max(highest, row.curves.at(1).value().max);
    }
    CHECK(highest == 6 * mib);
    CHECK(show(report) > 1000);
}

TEST_CASE("code made at run time is the same place in two runs, folded stacks are one") {
    const auto place_of = [](std::uint64_t address, const trace::StackDef& stack) {
        trace::Aggregator aggregator;
        aggregator.on(trace::DeviceInfo{0, "GPU", "GPU-0", 100 * mib, 13000});
        aggregator.on(stack);
        aggregator.on(trace::Event{.stack = 1, .address = address, .requested = 1, .size = 512});
        const auto read = report::parse_report(model::report_to_string(aggregator));
        REQUIRE(read.report);
        report::Resolver resolver(*read.report, nullptr);
        return resolver.place(1);
    };
    const report::Place one = place_of(0x1000, {1, false, {{0, 0x7fd200001234}}});
    CHECK(one == place_of(0x1000, {1, false, {{0, 0x7fc800005678}}}));
    CHECK(report::location_text(one, "") == "[jit]");
    const report::Place others = place_of(0x1000, {1, true, {}});
    CHECK(others.recorded);
    CHECK(others.function == "(other stacks)");
    CHECK_FALSE(place_of(0x1000, {1, false, {}}).recorded);
}

TEST_CASE("stacks and sites read the same in whatever way they are written") {
    const std::string plain = valid_report();
    report::TableTexts tables;
    REQUIRE(report::scan_tables(plain, 64, &tables));
    REQUIRE(tables.found);
    std::vector<model::Stack> stacks;
    std::vector<model::Site> sites;
    CHECK(report::read_stacks(tables.stacks, 2, stacks));
    CHECK(report::read_sites(tables.sites, stacks.size(), sites));
    CHECK_FALSE(report::read_stacks(tables.stacks, 1, stacks));  // refers to a missing frame
    CHECK_FALSE(report::read_sites(tables.sites, 1, sites));
    const auto view_of = [](const std::string& text) {
        const auto read = report::parse_report(text);
        INFO(read.error);
        REQUIRE(read.report);
        report::Resolver resolver(*read.report, nullptr);
        return report::render_json(report::summarize("file", *read.report, resolver), resolver, 10);
    };
    const std::string expected = view_of(plain);
    // Sorted by name, indented, with unknown members, with letters that need decoding.
    CHECK(view_of(json::parse(plain).dump()) == expected);
    CHECK(view_of(json::parse(plain).dump(3)) == expected);
    json changed = json::parse(plain);
    changed["sites"][0]["new"] = {1, 2};
    changed["stacks"][1]["new"] = "x";
    CHECK(view_of(changed.dump()) == expected);
    std::string escaped = plain;
    const std::size_t at = escaped.find("\"cuMemAlloc_v2\"");
    REQUIRE(at != std::string::npos);
    escaped.replace(at, 3, "\"\\u0063u");
    CHECK(view_of(escaped) == expected);
    // Invalid JSON is also rejected in the tables.
    for (const char* const wrong : {",,", "[", "}", "01", "1.", "-", "\"", "nul", " 1"}) {
        for (const std::string_view table : {tables.stacks, tables.sites}) {
            std::string damaged = plain;
            const auto begin = static_cast<std::size_t>(table.data() - plain.data());
            for (const std::size_t place : {std::size_t{0}, table.size() / 2, table.size()}) {
                damaged.insert(begin + place, wrong);
                const bool is_json = json::accept(damaged);
                INFO(wrong << " at " << place);
                CHECK((is_json || !report::parse_report(damaged).report));
                damaged = plain;
            }
        }
    }
}

TEST_CASE("a report that is wrong in one place is refused with that place's name") {
    struct Case {
        const char* pointer;
        json value;
        const char* expected;
    };
    const json huge = json::parse("1e300");
    const std::vector<Case> cases = {
        {"/format", "other", "not a memlab report"},
        {"/format", 7, "not a memlab report"},
        {"/scopes/0/parent", 0, "parent is 0, but what comes before it has only 0"},
        {"/steps/0/bytes_per_step", "fast", "bytes_per_step is text, not a number"},
        {"/version", 2, "has format version 2, this memlab-report reads version 1"},
        {"/version", "1", "version is text"},
        {"/process", json::array(), "the report.process is a list, not an object"},
        {"/process/pid", "42", "process.pid is text, not a whole number"},
        {"/process/pid", -1, "process.pid is the number -1"},
        {"/process/pid", 1.5, "process.pid is the number 1.5"},
        {"/process/duration_ns", huge, "process.duration_ns is the number 1e+300"},
        {"/process/arguments", "train", "process.arguments is text, not a list"},
        {"/process/arguments/0", nullptr, "process.arguments[0] is null, not text"},
        {"/process/started_late", 1, "process.started_late"},
        {"/process/ranks", 3, "process.ranks"},
        {"/devices", json::object(), "devices is an object, not a list"},
        {"/devices/0", 5, "devices[0] is the number 5, not an object"},
        {"/devices/0/curves/allocated/peak_bytes", nullptr, "devices[0].curves.allocated"},
        {"/devices/0/fragmentation/internal", 2, "between 0 and 1"},
        {"/devices/0/fragmentation/internal", "x", "a number or null"},
        {"/devices/0/timeline/bucket_ns", 18446744073709551615ULL, "does not fit into 64 bits"},
        {"/devices/0/timeline/columns", json::array({"bucket"}), "has no \"requested_min\""},
        {"/devices/0/timeline/columns", json::array(), "does not begin with \"bucket\""},
        {"/devices/0/timeline/rows/0", json::array({0}), "one number for each column"},
        {"/devices/0/at_peak/sites/0/site", 99, "but sites has only 1 entries"},
        {"/sites/0/stack", 9, "but stacks has only 2 entries"},
        {"/sites/0/lifetime_ns", 4, "sites[0].lifetime_ns"},
        {"/stacks/1/frames/0", 1000, "but frames has only 2 entries"},
        {"/frames/0/module", 18446744073709551615ULL, "but modules has only"},
        {"/ooms/0/error", 9223372036854775808ULL, "ooms[0].error"},
        {"/ooms/0/holders", nullptr, "ooms[0].holders"},
        {"/marks/0/devices/0/device", true, "marks[0].devices[0].device"},
        {"/integrity/incomplete", "no", "integrity.incomplete"},
        {"/log", json::array(), "log is a list"},
    };
    for (const Case& wrong : cases) {
        json changed = json::parse(valid_report());
        changed[json::json_pointer(wrong.pointer)] = wrong.value;
        const auto read = report::parse_report(changed.dump());
        CAPTURE(wrong.pointer, wrong.value.dump(), read.error);
        CHECK_FALSE(read.report);
        std::string expected = wrong.expected;
        if (expected.compare(0, 11, "the report.") == 0) {
            expected.erase(0, 11);
        }
        CHECK(read.error.find(expected) != std::string::npos);
        CHECK(read.error.find("; ") != std::string::npos);  // and what to do
        CHECK(read.error.find('\n') == std::string::npos);
    }
}

TEST_CASE("every member that the schema requires is missed") {
    const json root = json::parse(valid_report());
    std::size_t tried = 0;
    // Members for other tools, which the summary does not need.
    const std::vector<std::string> unread = {
        "contexts",       "start_iso8601", "context",       "thread",
        "bias",           "start",         "end",           "id",
        "peak_time_ns",   "at_peak_count", "at_peak_bytes", "pool",
        "allocations",    "limit_bytes",   "explanation",  // these and the following may be missing
        "scopes",         "steps",         "labels",        "unbalanced_scopes",
        "largest_live",   "coverage",      "threads",       "freed_elsewhere",
        "curves_at_peak", "refused_by",    "others",        "detail",
        "label_detail"};
    const std::function<void(const json&, const json::json_pointer&)> walk =
        [&](const json& node, const json::json_pointer& at) {
            for (auto item = node.begin(); node.is_object() && item != node.end(); ++item) {
                json changed = root;
                changed[at].erase(item.key());
                const auto read = report::parse_report(changed.dump());
                CAPTURE((at / item.key()).to_string(), read.error);
                const bool table = at.to_string().find("memory_stats") != std::string::npos ||
                                   at.to_string() == "/options" ||
                                   at.to_string() == "/process/ranks" ||
                                   at.to_string() == "/devices/0/kinds" ||
                                   at.to_string().find("/ooms/0/pool") == 0 ||
                                   (at / item.key()).to_string().find("/ooms/0/kinds") == 0;
                const bool used =
                    !table && at.to_string().compare(0, 9, "/contexts") != 0 &&
                    std::find(unread.begin(), unread.end(), item.key()) == unread.end();
                if (used) {
                    CHECK_FALSE(read.report);
                    CHECK(read.error.find(item.key()) != std::string::npos);
                    ++tried;
                }
                walk(item.value(), at / item.key());
            }
            for (std::size_t i = 0; node.is_array() && i < node.size(); ++i) {
                walk(node[i], at / i);
            }
        };
    walk(root, json::json_pointer());
    CHECK(tried > 100);
}

TEST_CASE("members that a later writer adds are ignored") {
    json changed = json::parse(valid_report());
    changed["new"] = {{"deep", {1, 2, 3}}};
    changed["process"]["new"] = nullptr;
    changed["devices"][0]["timeline"]["columns"].push_back("new_max");
    for (auto& row : changed["devices"][0]["timeline"]["rows"]) {
        row.push_back(nullptr);
    }
    CHECK(report::parse_report(changed.dump()).report);
}

TEST_CASE("text that is no report") {
    const auto error = [](const std::string& text) {
        const auto read = report::parse_report(text);
        CHECK_FALSE(read.report);
        CHECK(read.error.find('\n') == std::string::npos);
        CHECK(read.error.find("; ") != std::string::npos);
        return read.error;
    };
    CHECK(error("[]").find("not a memlab report") != std::string::npos);
    CHECK(error("{}").find("not a memlab report") != std::string::npos);
    CHECK(error("{\"format\": \"memlab-report\"}").find("version") != std::string::npos);
    CHECK(error("{nonsense").find("not valid JSON at byte 3") != std::string::npos);
    CHECK(error(std::string("{\"a\": \"\0\"}", 10)).find("not valid JSON") != std::string::npos);
    CHECK(error("{\"a\": \"\xff\"}").find("not valid JSON") != std::string::npos);
    CHECK(error("{\"a\": 1e999}").find("out of range") != std::string::npos);
    CHECK(error(std::string(1'000'000, '[')).find("nested too deeply") != std::string::npos);
    const std::string valid = valid_report();
    for (const std::size_t part : {1UL, 10UL, 100UL, valid.size() / 2, valid.size() - 2}) {
        CHECK(error(valid.substr(0, part)).find("ends in the middle") != std::string::npos);
    }
    CHECK(error(valid + "x").find("not valid JSON") != std::string::npos);
}

TEST_CASE("files that cannot be read as what they are") {
    TemporaryFolder folder;
    const auto error = [](const std::string& path) {
        const auto read = report::read_report(path);
        CHECK_FALSE(read.report);
        CHECK(read.error.find('\n') == std::string::npos);
        CHECK(read.error.find("; ") != std::string::npos);
        return read.error;
    };
    CHECK(error(folder.folder() + "/none").find("no such file") != std::string::npos);
    CHECK(error(folder.folder()).find("a folder; give one file of it") != std::string::npos);
    CHECK(error("/dev/null").find("not a regular file") != std::string::npos);
    CHECK(error(folder.file("empty", "")).find("empty") != std::string::npos);
    CHECK(error(folder.file("binary", std::string("\x7f"
                                                  "ELF\0\0\0",
                                                  7)))
              .find("neither") != std::string::npos);
    CHECK(error(folder.file("words", "hello")).find("neither") != std::string::npos);
    const std::string secret = folder.file("secret", valid_report());
    chmod(secret.c_str(), 0);
    if (geteuid() != 0) {  // root reads everything
        CHECK(error(secret).find("no permission") != std::string::npos);
    }
}

TEST_CASE("an event log reads as the report that the process would have written") {
    TemporaryFolder folder;
    const std::string path = folder.path("run.memlog");
    auto created = trace::LogWriter::create(path, 0);
    REQUIRE(created.writer);
    record(*created.writer);
    created.writer->close();
    CHECK(report::derive_json(path).json == valid_report());
    const auto read = report::read_report(path);
    CHECK(read.error.empty());
    CHECK(read.warning.empty());
    REQUIRE(read.report);
    const auto parsed = report::parse_report(valid_report());
    REQUIRE(parsed.report);
    CHECK(read.report->stacks == parsed.report->stacks);
    CHECK(read.report->sites == parsed.report->sites);
    CHECK(show(*read.report) == show(*parsed.report));
}

TEST_CASE("sites and stacks of a log are those of its text, names of invalid UTF-8 included") {
    trace::Aggregator aggregator;
    record(aggregator);
    aggregator.on(trace::StringDef{4, "cu\xffMem\xe2\x82"});
    trace::Event event;
    event.context = 1;
    event.api = 4;
    event.name = 4;
    event.address = 0x20000000;
    event.requested = event.size = 512;
    aggregator.on(event);
    event.type = trace::EventType::label;
    aggregator.on(event);
    const auto made = report::make_report(aggregator, model::Moment::running);
    const auto parsed =
        report::parse_report(model::report_to_string(aggregator, model::Moment::running));
    REQUIRE(made.report);
    REQUIRE(parsed.report);
    CHECK(made.report->stacks == parsed.report->stacks);
    CHECK(made.report->sites == parsed.report->sites);
    CHECK(made.report->process.ended == "running");
}

TEST_CASE("a damaged event log is shown up to the damage, with a warning") {
    TemporaryFolder folder;
    const std::string path = folder.path("run.memlog");
    auto created = trace::LogWriter::create(path, 0);
    REQUIRE(created.writer);
    trace::ProcessInfo process;
    process.pid = 1;
    created.writer->on(process);
    for (std::uint32_t i = 1; i <= 200'000; ++i) {
        created.writer->on(trace::StringDef{i, "name"});
    }
    created.writer->close();
    std::ifstream file(path, std::ios::binary);
    std::string bytes((std::istreambuf_iterator<char>(file)), {});
    std::string late = bytes;
    late[late.size() - 20] = static_cast<char>(late[late.size() - 20] ^ 0x55);
    const auto damaged = report::read_report(folder.file("late.memlog", late));
    REQUIRE(damaged.report);
    CHECK(damaged.report->process.pid == 1);
    CHECK(damaged.warning.find("damaged at byte") != std::string::npos);
    CHECK(damaged.warning.find(folder.folder()) == std::string::npos);

    bytes[40] = static_cast<char>(bytes[40] ^ 0x55);
    const auto useless = report::read_report(folder.file("early.memlog", bytes));
    CHECK_FALSE(useless.report);
    CHECK(useless.error.find("without a whole record (damaged at byte") != std::string::npos);
}

TEST_CASE("how a process died is added to a report that was cut off, and to no other") {
    CHECK(report::add_process_end(valid_report(), "SIGKILL", -1) == valid_report());
    CHECK(report::add_process_end("no report", "SIGKILL", -1) == "no report");
    json cut = json::parse(valid_report());
    cut["process"]["ended"] = "cut off";
    const auto killed = report::parse_report(report::add_process_end(cut.dump(), "SIGKILL", -1));
    REQUIRE(killed.report);
    CHECK(killed.report->process.signal == "SIGKILL");
    CHECK_FALSE(killed.report->process.exit_code);
    const auto left = report::parse_report(report::add_process_end(cut.dump(), "", 3));
    REQUIRE(left.report);
    CHECK(left.report->process.exit_code == 3);
    CHECK(left.report->process.recorded_ns == 0);

    // Its parent knows the time of its end, the recording only that of the last event.
    const std::uint64_t start = cut["process"]["start_wall_ns"];
    const std::uint64_t recorded = cut["process"]["duration_ns"];
    const std::uint64_t hours = 3600ULL * 1'000'000'000 * 3;
    const auto longer = report::parse_report(
        report::add_process_end(cut.dump(), "SIGKILL", -1, {start, start + hours}));
    REQUIRE(longer.report);
    CHECK(longer.report->process.duration_ns == hours);
    CHECK(longer.report->process.recorded_ns == recorded);
    CHECK(report::end_text(longer.report->process) == "killed by SIGKILL after 3 h 00 min");
    const auto clock_set_back = report::parse_report(
        report::add_process_end(cut.dump(), "SIGKILL", -1, {start + 1, start + hours}));
    REQUIRE(clock_set_back.report);
    CHECK(clock_set_back.report->process.duration_ns == recorded);
}

TEST_CASE("3000 damaged reports: one line of error, or a report that can be shown") {
    const std::string valid = valid_report();
    std::mt19937 random(20260301);
    const auto pick = [&random](std::size_t below) {
        return std::uniform_int_distribution<std::size_t>(0, below - 1)(random);
    };
    static const std::vector<std::string> words = {
        "null", "-1",   "18446744073709551615", "1e308", "\"\"", "[]", "{}",
        "0",    "true", "\"\\u0000\""};
    std::size_t shown = 0;
    for (int round = 0; round < 3000; ++round) {
        std::string text = valid;
        for (std::size_t k = 0; k <= pick(3); ++k) {
            const std::size_t at = pick(text.size());
            switch (pick(5)) {
                case 0:
                    text[at] = static_cast<char>(pick(256));
                    break;
                case 1:
                    text.resize(at + 1);
                    break;
                case 2:
                    text.erase(at, pick(40));
                    break;
                case 3:
                    text.insert(at, text.substr(pick(text.size()), pick(60)));
                    break;
                default: {
                    // Replace a whole value, so that the JSON often stays valid and is checked.
                    const std::size_t colon = text.find(':', at);
                    const std::size_t end = text.find_first_of(",}]", colon);
                    if (colon != std::string::npos && end != std::string::npos) {
                        text.replace(colon + 1, end - colon - 1, words[pick(words.size())]);
                    }
                }
            }
        }
        const auto read = report::parse_report(text);
        if (read.report) {
            shown += show(*read.report) > 0 ? 1 : 0;
        } else if (read.error.empty() || read.error.find('\n') != std::string::npos) {
            FAIL("round " << round << ": " << read.error);
        }
    }
    // Both outcomes must occur, otherwise the test is vacuous.
    CHECK(shown > 100);
    CHECK(shown < 2900);
}
