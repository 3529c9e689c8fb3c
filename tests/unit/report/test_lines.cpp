// Line tables, from a recording with known figures.
#include <fstream>
#include <nlohmann/json.hpp>

#include "report/lines/line_tables.hpp"
#include "report/lines/render.hpp"
#include "report/lines/source_text.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/reader.hpp"
#include "report/steps.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"

using namespace memlab::test;
using namespace memlab::model;
using namespace memlab::report;
using memlab::trace::LogWriter;

namespace {

constexpr std::uint64_t kib = 1024;

const char* const source =
    "import lib\n"              // 1
    "\n"                        // 2
    "@decorated\n"              // 3
    "def step(\n"               // 4
    "    x,\n"                  // 5
    "):\n"                      // 6
    "    y = forward(x)\n"      // 7
    "\n"                        // 8
    "    step(y)\n"             // 9
    "    return y\n"            // 10
    "\n"                        // 11
    "def forward(x):\n"         // 12
    "    return lib.relu(x)\n"  // 13
    "\n"                        // 14
    "step(1)\n";                // 15

/// Two steps of a Python program, each ended by a mark. Stacks: 1 is forward (line 13) called by
/// step (7); 2 is step (9) calling itself (7) into forward; 3 is of the module alone (15).
class Program {
  public:
    explicit Program(const std::string& file) : file_(file) {
        records_.emplace_back(ProcessInfo{.pid = 42,
                                          .executable = "/usr/bin/python3",
                                          .start_wall_ns = 4'000'000'000'000'000'000});
        const char* const strings[] = {"cuMemAlloc_v2", "step", "forward",   "<module>",
                                       file.c_str(),    "mark", "other mark"};
        for (const char* text : strings) {
            records_.emplace_back(StringDef{++count_, text});
        }
        records_.emplace_back(DeviceInfo{0, "GPU", "GPU-0", 1 << 30, 13000});
        records_.emplace_back(ContextInfo{1, 0, true});
        records_.emplace_back(PythonFrameDef{1, 3, 5, 13, 12});
        records_.emplace_back(PythonFrameDef{2, 2, 5, 7, 3});
        records_.emplace_back(PythonFrameDef{3, 2, 5, 9, 3});
        records_.emplace_back(PythonFrameDef{4, 4, 5, 15, 1});
        const auto python = [](std::uint32_t id) { return memlab::trace::Frame{0, 0, id}; };
        records_.emplace_back(StackDef{1, false, {python(1), python(2), python(4)}});
        records_.emplace_back(StackDef{2, false, {python(1), python(2), python(3), python(4)}});
        records_.emplace_back(StackDef{3, false, {python(4)}});
        event(EventType::segment_alloc, 0, 1000 * kib, 3);
        alloc(0, 100 * kib, 1);   // line 7: 100 held
        alloc(100, 50 * kib, 2);  // lines 7 and 9: 150 held
        release(100, 50 * kib);
        mark(6);
        mark(7);
        alloc(200, 300 * kib, 3);  // the module: 400 held
        release(0, 100 * kib);
        alloc(600, 20 * kib, 1);  // line 7: 320 held
        OomEvent oom;
        oom.time_ns = ++now_;
        oom.context = 1;
        oom.stack = 2;
        oom.requested = 1 << 30;
        records_.emplace_back(oom);
        mark(6);
        records_.emplace_back(End{++now_, EndKind::exit, 0, ""});
    }

    std::string write(const TemporaryFolder& folder) const {
        std::string path = folder / "log.memlog";
        auto created = LogWriter::create(path, 0);
        REQUIRE(created.writer);
        feed(records_, *created.writer);
        created.writer->close();
        return path;
    }

  private:
    Event& event(EventType type, std::uint64_t at, std::uint64_t bytes, std::uint32_t stack) {
        Event event;
        event.type = type;
        event.origin = Origin::pool;
        event.context = 1;
        event.thread = 42;
        event.time_ns = ++now_;
        event.address = 0x7f0000000000 + at * kib;
        event.size = bytes;
        event.api = stack == 0 ? 0 : 1;
        event.stack = stack;
        return std::get<Event>(records_.emplace_back(event));
    }
    void alloc(std::uint64_t at, std::uint64_t bytes, std::uint32_t stack) {
        event(EventType::alloc, at, bytes, stack).requested = bytes;
    }
    void release(std::uint64_t at, std::uint64_t bytes) {
        event(EventType::free_requested, at, bytes, 0);
        event(EventType::free_completed, at, bytes, 0);
    }
    void mark(std::uint32_t name) {
        Event event;
        event.type = EventType::mark;
        event.time_ns = ++now_;
        event.name = name;
        records_.emplace_back(event);
    }

    std::string file_;
    Records records_;
    std::uint32_t count_ = 0;
    std::uint64_t now_ = 0;
};

/// The recording of the program, its source beside it.
struct Recorded {
    Recorded() {
        std::ofstream(folder / "train.py") << source;
        log = Program(folder / "train.py").write(folder);
        ReadResult read = read_report(log);
        REQUIRE(read.report);
        report = std::move(*read.report);
        resolver.emplace(report, nullptr);
    }
    /// Checks that moments collected while the report is read equal those of a second pass.
    LineTables tables(const LineQuery& query, const std::string& expected_problem = "") {
        std::string problem;
        LineTables result = line_tables(report, *resolver, log, query, &problem);
        CHECK(problem == expected_problem);
        StackMoments collected(query);
        REQUIRE(read_report(log, collected.sink_factory()).report);
        CHECK(collected.log() == (query.every == 0 ? log : ""));
        problem.clear();
        CHECK(lines_json(line_tables(report, *resolver, log, query, &problem, &collected)) ==
              lines_json(result));
        CHECK(problem == expected_problem);
        return result;
    }

    TemporaryFolder folder;
    std::string log;
    Report report;
    std::optional<Resolver> resolver;
};

using Values = std::vector<std::optional<std::uint64_t>>;

}  // namespace

TEST_CASE("a line has what it and all below it allocated, and what was held then") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.function = "step";
    query.columns = {"active", "reserved", "bytes", "count", "live", "at_peak"};
    const LineTables tables = recorded.tables(query);
    REQUIRE(tables.groups.size() == 1);
    REQUIRE(tables.groups[0].tables.size() == 1);
    const LineTable& table = tables.groups[0].tables[0];
    CHECK(table.function == "step");
    CHECK(table.first_line == 3);
    REQUIRE(table.rows.size() == 2);
    // The peak of 400 KiB held the first 100 KiB of line 7.
    CHECK(table.rows.at(7).values ==
          Values{320 * kib, 1000 * kib, 170 * kib, 3, 20 * kib, 100 * kib});
    CHECK(table.rows.at(9).values == Values{150 * kib, 1000 * kib, 50 * kib, 1, 0, std::nullopt});
    CHECK(table.rows.at(7).ooms == 1);
    CHECK(table.rows.at(9).ooms == 1);
}

TEST_CASE("without a function every function of the file is shown, in the file's order") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    const LineTables tables = recorded.tables(query);
    REQUIRE(tables.groups[0].tables.size() == 3);
    CHECK(tables.groups[0].tables[0].function == "<module>");
    CHECK(tables.groups[0].tables[1].function == "step");
    CHECK(tables.groups[0].tables[2].function == "forward");
    CHECK(tables.groups[0].tables[0].rows.at(15).values[0] == 400 * kib);
}

TEST_CASE("statistics of the pool are columns by PyTorch's keys") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.function = "step";
    query.columns = {"active_bytes.all.peak", "active_bytes.all.current", "num_device_alloc",
                     "allocation.all.allocated"};
    const LineTables tables = recorded.tables(query);
    const LineTable& table = tables.groups[0].tables[0];
    CHECK(table.rows.at(7).values == Values{320 * kib, 320 * kib, 1, 4});
    CHECK(table.rows.at(9).values == Values{150 * kib, 150 * kib, 1, 2});
    CHECK(tables.columns[0].bytes);
    CHECK_FALSE(tables.columns[2].bytes);
    CHECK(check_column("active_bytes.all.peak").empty());
    CHECK(check_column("oversize_segments.peak").empty());
    CHECK_FALSE(check_column("active_bytes.all").empty());
    CHECK_FALSE(check_column("active_bytes.all.peak ").empty());
    CHECK_FALSE(check_column("").empty());
}

TEST_CASE("steps end at marks, all or those of a name") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.function = "step";
    query.columns = {"active", "reserved", "bytes"};
    query.every = 1;
    LineTables tables = recorded.tables(query);  // the step between the two marks is empty
    REQUIRE(tables.groups.size() == 2);
    CHECK(tables.groups[0].first_step == 1);
    CHECK(tables.groups[0].last_step == 1);
    CHECK(tables.groups[0].tables[0].rows.at(7).values == Values{150 * kib, 1000 * kib, 150 * kib});
    CHECK(tables.groups[1].first_step == 3);
    CHECK(tables.groups[1].tables[0].rows.at(7).values == Values{320 * kib, 1000 * kib, 20 * kib});
    query.step = "mark";
    tables = recorded.tables(query);
    REQUIRE(tables.groups.size() == 2);
    CHECK(tables.groups[1].first_step == 2);
    query.step = "none such";
    recorded.tables(
        query, "has no marks or scopes named none such; the summary lists those that there are");
    query.step = "";
    query.columns = {"live"};
    recorded.tables(query, "the column live is of the whole run; leave --every out");
}

TEST_CASE("a log whose moments were collected is not read again, any other is") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.columns = {"active"};
    StackMoments collected(query);
    REQUIRE(read_report(recorded.log, collected.sink_factory()).report);
    const std::string moved = recorded.folder / "moved.memlog";
    std::filesystem::rename(recorded.log, moved);
    const auto held = [&](const std::string& log) {
        std::string problem;
        const LineTables tables =
            line_tables(recorded.report, *recorded.resolver, log, query, &problem, &collected);
        return tables.groups.at(0).tables.at(0).rows.at(15).values.at(0);
    };
    CHECK(held(recorded.log) == 400 * kib);
    CHECK(held(moved) == 400 * kib);
    CHECK(held(recorded.folder / "none.memlog") == std::nullopt);
}

TEST_CASE("a filter keeps allocations out") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.columns = {"active"};
    REQUIRE(query.filter.add("func=forward").empty());
    const LineTables tables = recorded.tables(query);
    REQUIRE(tables.groups[0].tables.size() == 3);
    CHECK(tables.groups[0].tables[0].rows.at(15).values[0] == 320 * kib);  // not the module's own
}

TEST_CASE("a report alone has sums, and says what it has not") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.function = "step";
    std::string problem;
    const LineTables tables = line_tables(recorded.report, *recorded.resolver, {}, query, &problem);
    CHECK(problem.empty());
    CHECK(tables.columns[0].name == "at_peak");
    CHECK(tables.groups[0].tables[0].rows.at(7).values == Values{100 * kib, 170 * kib, 20 * kib});
    query.columns = {"active"};
    line_tables(recorded.report, *recorded.resolver, {}, query, &problem);
    CHECK(problem ==
          "has no moments, which the column active shows; give its event log (*.memlog), which is "
          "kept beside the report unless MEMLAB_KEEP_LOG=off");
    query.columns = {};
    query.every = 2;
    line_tables(recorded.report, *recorded.resolver, {}, query, &problem);
    CHECK(problem.starts_with("has sums of the whole run, not the steps of --every; give its "));
    query.every = 0;
    query.file = "rain.py";
    line_tables(recorded.report, *recorded.resolver, {}, query, &problem);
    CHECK(problem.starts_with("no allocation was made in step of rain.py; "));
}

TEST_CASE("the log beside a report is found when it is of the same process") {
    Recorded recorded;
    CHECK(find_event_log(recorded.log, recorded.report) == recorded.log);
    CHECK(find_event_log(recorded.folder / "log.json", recorded.report) == recorded.log);
    CHECK(find_event_log(recorded.folder / "other.json", recorded.report).empty());
    CHECK(find_event_log(recorded.folder / "log", recorded.report).empty());
    recorded.report.process.pid = 43;
    CHECK(find_event_log(recorded.folder / "log.json", recorded.report).empty());
}

TEST_CASE("the function's whole source is shown, with its figures") {
    Recorded recorded;
    LineQuery query;
    query.file = "train.py";
    query.function = "step";
    query.columns = {"active", "reserved", "bytes"};
    LineTextOptions options;
    options.working_directory = recorded.folder.path();
    options.recorded_wall_ns = recorded.report.process.start_wall_ns;
    CHECK("\n" + render_lines(recorded.tables(query), options) == R"(
## step  train.py

   program's   program's       bytes  line  code
      active    reserved
        peak        peak
                                         3  @decorated
                                         4  def step(
                                         5      x,
                                         6  ):
  320.00 KiB 1000.00 KiB  170.00 KiB     7      y = forward(x)  <- out of memory
                                         8
  150.00 KiB 1000.00 KiB   50.00 KiB     9      step(y)  <- out of memory
                                        10      return y
)");
    options.recorded_wall_ns = 1;
    CHECK(render_lines(recorded.tables(query), options)
              .ends_with("\nThe source is newer than the recording: lines may have moved.\n"));
    std::filesystem::rename(recorded.folder / "train.py", recorded.folder / "gone");
    CHECK(render_lines(recorded.tables(query), options)
              .find("Source not found (train.py: no such file here)") != std::string::npos);
    const auto json = nlohmann::json::parse(lines_json(recorded.tables(query)));
    CHECK(json["groups"][0]["first_step"].is_null());
    CHECK(json["groups"][0]["functions"][0]["lines"][0]["line"] == 7);
    CHECK(json["groups"][0]["functions"][0]["lines"][0]["active"] == 320 * kib);
}

TEST_CASE("the default columns are of the line's own memory, of a log and of its report") {
    LineQuery query;
    const auto names = [&query] {
        std::vector<std::string> shown;
        for (const LineColumn& column : select_columns(query)) {
            CHECK(column.source == LineColumn::Source::sum);
            shown.push_back(column.name);
        }
        return shown;
    };
    CHECK(names() == std::vector<std::string>{"at_peak", "bytes", "live"});
    query.every = 2;
    CHECK(names() == std::vector<std::string>{"bytes", "count"});
}

TEST_CASE("a source is found in the folders given, under the longest end of its path") {
    const TemporaryFolder folder;
    std::filesystem::create_directories(folder / "a/src");
    std::ofstream(folder / "a/src/x.py") << "1\n";
    std::ofstream(folder / "a/x.py") << "2\n";
    const std::vector<std::string> folders = {folder / "none", folder / "a"};
    CHECK(find_source("/build/src/x.py", folders) == folder / "a/src/x.py");
    CHECK(find_source("/build/other/x.py", folders) == folder / "a/x.py");
    CHECK(find_source("/build/other/y.py", folders) == "/build/other/y.py");
    CHECK(find_source(folder / "a/x.py", {}) == folder / "a/x.py");
}

TEST_CASE("what is no source is not shown") {
    const TemporaryFolder folder;
    CHECK(read_source(folder.path()).problem == "not a source file");
    CHECK(read_source(folder / "none").problem == "no such file here");
    write_file(folder / "binary", {'a', 0, 'b', '\n'});
    CHECK(read_source(folder / "binary").problem == "not a source file");
    std::ofstream(folder / "tabs") << "\tif\tx:\r\nend";
    const SourceText text = read_source(folder / "tabs");
    CHECK(text.problem.empty());
    CHECK(text.lines == std::vector<std::string>{"        if      x:", "end"});
    CHECK(python_function(text, 9, 9).first == 9);
}

TEST_CASE("where a function ends") {
    const TemporaryFolder folder;
    std::ofstream(folder / "c.cpp")
        << "int a;\n\nvoid f() {\n    a();\n    b();\n    c();\n    d();\n"
           "    e();\n    g();\n}\n\nint z;\n";
    const SourceText text = read_source(folder / "c.cpp");
    const LineRange range = surroundings(text, 5, 6);
    CHECK(range.first == 3);
    CHECK(range.last == 9);
    CHECK(surroundings(text, 100, 200).last == 12);
    std::ofstream(folder / "p.py")
        << "f = lambda x: g(x)\nclass C:\n    def m(self): return g(1)\n"
           "    async def n(self):\n        # text\n\n        g(2)\n    x = 1\n";
    const SourceText python = read_source(folder / "p.py");
    CHECK(python_function(python, 1, 1).last == 1);
    CHECK(python_function(python, 3, 3).last == 3);
    CHECK(python_function(python, 4, 7).last == 7);
}

TEST_CASE("a step is meant by its name, with and without its number") {
    using memlab::report::is_step_named;
    for (const char* path : {"step", "step 0", "step 12", "step #", "epoch #/step", "step_3",
                             "epoch 2/step 7", "Step/step#"}) {
        INFO(path);
        CHECK(is_step_named(path, "step"));
    }
    CHECK(is_step_named("step 12", "step 12"));
    CHECK(is_step_named("epoch 2/step 7", "epoch #/step #"));
    for (const char* path : {"steps", "substep", "step a", "", "step/forward", "12"}) {
        INFO(path);
        CHECK_FALSE(is_step_named(path, "step"));
    }
    CHECK_FALSE(is_step_named("12", ""));
}
