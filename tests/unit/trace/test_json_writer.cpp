// The JSON report: the same online and from the log, exact, valid for any strings, and written
// completely or not at all.
#include "model/json_writer.hpp"
#include "model/report_file.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "model/json_output.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"
#include "tests/unit/trace/temporary_folder.hpp"
#include "trace/log_writer.hpp"
#include "trace/reading/log_reader.hpp"

using namespace memlab::test;
using namespace memlab::trace;
using memlab::model::Existing;
using memlab::model::report_to_string;
using memlab::model::StringSink;
using memlab::model::write_report;
using memlab::model::WriteResult;
using Json = nlohmann::json;

namespace {

/// How the writer puts one string, without its quotes and the final newline.
std::string written(const std::string& value) {
    StringSink sink;
    memlab::model::JsonOutput json(sink);
    json.string(value);
    json.finish();
    return sink.text.substr(1, sink.text.size() - 3);
}

std::string report_of(const Records& records) {
    Aggregator aggregator;
    feed(records, aggregator);
    return report_to_string(aggregator);
}

std::size_t files_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(folder), {}));
}

}  // namespace

TEST_CASE("the report from the log is the report of the process, byte for byte") {
    const TemporaryFolder folder;
    for (std::uint64_t seed = 0; seed < 30; ++seed) {
        CAPTURE(seed);
        const bool ends = seed % 3 != 0;
        const Records records = seed % 2 == 0 ? PlausibleRecords::make(seed, 4000, ends)
                                              : WildRecords::make(seed, 4000, ends);
        const std::string path = folder / std::to_string(seed);
        auto created = LogWriter::create(path, 0);
        Aggregator online;
        for (const AnyRecord& record : records) {
            feed(record, *created.writer);
            feed(record, online);
        }
        created.writer->close();
        Aggregator from_log;
        CHECK(read_log(path, from_log).status == (ends ? LogStatus::complete : LogStatus::cut_off));
        const std::string expected = report_to_string(online);
        REQUIRE(report_to_string(from_log) == expected);
        REQUIRE_NOTHROW(Json::parse(expected));
    }
}

TEST_CASE("the figures of the report are the aggregator's, exactly") {
    const Records records = PlausibleRecords::make(5, 3000);
    Aggregator aggregator;
    feed(records, aggregator);
    const Json json = Json::parse(report_to_string(aggregator));
    CHECK(json["format"] == "memlab-report");
    CHECK(json["version"] == 1);
    CHECK(json["process"]["start_iso8601"] == "2025-12-31T23:59:59.123456Z");
    CHECK(json["process"]["start_wall_ns"].get<std::uint64_t>() == 1767225599123456789);
    CHECK(json["process"]["ended"] == "exit");
    CHECK(json["process"]["ranks"]["RANK"] == "3");
    CHECK(json["process"]["duration_ns"].get<std::uint64_t>() == aggregator.duration_ns());
    CHECK(json["options"]["MEMLAB_OUTPUT"] == "out");
    REQUIRE(json["devices"].size() == 2);
    for (const Json& device : json["devices"]) {
        const auto index = device["index"].get<std::uint32_t>();
        const DeviceTotals& totals = *aggregator.devices()[index];
        for (const CurveName name : {CurveName::requested, CurveName::allocated, CurveName::active,
                                     CurveName::reserved, CurveName::device_used}) {
            const Json& curve = device["curves"][name_of(name)];
            CHECK(curve["peak_bytes"].get<std::uint64_t>() == totals.curve(name).peak);
            CHECK(curve["peak_time_ns"].get<std::uint64_t>() == totals.curve(name).peak_time_ns);
            CHECK(curve["at_end_bytes"].get<std::uint64_t>() == totals.curve(name).current);
            // The peak is in the timeline.
            const Json& columns = device["timeline"]["columns"];
            const auto column = static_cast<std::size_t>(
                std::find(columns.begin(), columns.end(), name_of(name) + std::string("_max")) -
                columns.begin());
            REQUIRE(column < columns.size());
            std::uint64_t highest = 0;
            for (const Json& row : device["timeline"]["rows"]) {
                REQUIRE(row.size() == columns.size());
                highest =
                    std::max(highest, row[column].is_null() ? 0 : row[column].get<std::uint64_t>());
            }
            CHECK(highest == totals.curve(name).peak);
        }
        const Json& stats = device["memory_stats"];
        CHECK(stats.size() == 9 * 3 * 4 + 2 * 4 + 6);
        CHECK(stats["allocated_bytes.all.peak"].get<std::uint64_t>() ==
              totals.pool.stats.allocated_bytes.all.peak);
        CHECK(stats["inactive_split.small_pool.freed"].get<std::uint64_t>() ==
              totals.pool.stats.inactive_split.small_pool.freed);
        CHECK(device["fragmentation"]["at_peak"].get<double>() ==
              Approx(1 - static_cast<double>(totals.fragmentation.peak_active) /
                             static_cast<double>(totals.fragmentation.peak_reserved)));
        std::uint64_t at_peak = device["at_peak"]["other"]["bytes"].get<std::uint64_t>();
        for (const Json& holder : device["at_peak"]["sites"]) {
            at_peak += holder["bytes"].get<std::uint64_t>();
            CHECK(json["sites"][holder["site"].get<std::size_t>()]["at_peak_bytes"] ==
                  holder["bytes"]);
        }
        CHECK(at_peak == totals.curve(CurveName::allocated).peak);
        CHECK(device["at_peak"]["bytes"].get<std::uint64_t>() == at_peak);
        CHECK(device["live"]["bytes"].get<std::uint64_t>() ==
              totals.curve(CurveName::allocated).current);
    }
    REQUIRE(json["sites"].size() == aggregator.sites().size());
    for (const Json& site : json["sites"]) {
        CHECK(site["stack"].get<std::size_t>() < json["stacks"].size());
        CHECK(site["api"].get<std::string>().substr(0, 5) == "name ");
    }
    CHECK(json["stacks"][0]["frames"].empty());
    CHECK(json["stacks"][1]["frames"].size() == 3);
    const Json& python = json["frames"][json["stacks"][2]["frames"][1].get<std::size_t>()];
    CHECK(python == Json{{"module", 0}, {"address", 0}, {"python", 2}});
    CHECK(json["python_frames"][2] ==
          Json{{"function", "name 1"}, {"file", "name 3"}, {"line", 20}, {"first_line", 5}});
    const Json& frame = json["frames"][json["stacks"][1]["frames"][0].get<std::size_t>()];
    CHECK(frame["address"] == 64);
    CHECK(json["modules"][frame["module"].get<std::size_t>()]["build_id"] == "ab12");
    CHECK(json["log"]["events"].get<std::uint64_t>() == aggregator.event_count());
}

TEST_CASE("an empty recording is a valid report") {
    const Json json = Json::parse(report_to_string(Aggregator()));
    CHECK(json["process"]["ended"] == "cut off");
    CHECK(json["process"]["start_iso8601"] == "1970-01-01T00:00:00.000000Z");
    CHECK(json["devices"].empty());
    CHECK(json["stacks"].size() == 1);
}

TEST_CASE("a device without samples has null where nothing is known") {
    const Json json = Json::parse(report_of({DeviceInfo{.index = 3, .driver_version = 13000}}));
    const Json& device = json["devices"][0];
    CHECK(device["index"] == 3);
    CHECK(device["curves"]["device_used"]["peak_bytes"].is_null());
    CHECK(device["fragmentation"]["at_peak"].is_null());
    CHECK(device["fragmentation"]["external"].is_null());
    CHECK(device["fragmentation"]["internal"].is_null());
    CHECK(device["timeline"]["rows"].empty());
}

TEST_CASE("integers are exact up to the last bit") {
    Event event;
    event.requested = event.size = std::numeric_limits<std::uint64_t>::max() - 1;
    event.address = 1;
    const Json json = Json::parse(
        report_of({DeviceInfo{.index = 0,
                              .total_bytes = (std::uint64_t{1} << 53) + 1,
                              .driver_version = std::numeric_limits<std::int32_t>::max()},
                   event}));
    CHECK(json["sites"][0]["bytes"].get<std::uint64_t>() == 0xfffffffffffffffe);
    CHECK(json["devices"][0]["total_bytes"].get<std::uint64_t>() == 9007199254740993);
    CHECK(json["devices"][0]["driver_version"].get<std::int64_t>() == 2147483647);
}

TEST_CASE("a driver's version below 0 is unknown") {
    const Json json = Json::parse(report_of({DeviceInfo{.index = 0, .driver_version = -1}}));
    CHECK(json["devices"][0]["driver_version"].get<std::int64_t>() == 0);
}

TEST_CASE("text is valid UTF-8 and valid JSON whatever it was") {
    const std::string fffd = "\xef\xbf\xbd";
    CHECK(written("plain") == "plain");
    CHECK(written("\"\\/") == "\\\"\\\\/");
    CHECK(written(std::string("a\0b", 3)) == "a\\u0000b");
    CHECK(written("\n\t\r\x1b\x7f") == "\\n\\t\\u000d\\u001b\\u007f");
    CHECK(written("\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80") ==
          "\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80");
    CHECK(written("\xff") == fffd);
    CHECK(written("\x80\x80") == fffd + fffd);
    CHECK(written("\xc0\xaf") == fffd + fffd);                        // overlong
    CHECK(written("\xe0\x80\xaf") == fffd + fffd + fffd);             // overlong
    CHECK(written("\xed\xa0\x80") == fffd + fffd + fffd);             // surrogate
    CHECK(written("\xf4\x90\x80\x80") == fffd + fffd + fffd + fffd);  // > U+10FFFF
    CHECK(written("\xe2\x82") == fffd);                               // cut off
    CHECK(written("\xe2\x82x") == fffd + "x");
    CHECK(written("\xf0\x9f\x98") == fffd);
    CHECK(written("\xf0\x9f\x98\xf0\x9f\x98\x80") == fffd + "\xf0\x9f\x98\x80");
    Random random(1);
    for (int i = 0; i < 2000; ++i) {
        std::string bytes(random.below(12), '\0');
        for (char& c : bytes) {
            c = static_cast<char>(random.below(256));
        }
        // The strict parser takes it; and where the bytes were valid, gives them back.
        const std::string text = "\"" + written(bytes) + "\"";
        std::string back;
        REQUIRE_NOTHROW(back = Json::parse(text).get<std::string>());
        if (back.find(fffd) == std::string::npos) {
            REQUIRE(back == bytes);
        }
    }
}

TEST_CASE("hostile names stay names") {
    ProcessInfo process;
    process.executable = "/tmp/\"},\xff\n</script>";
    process.arguments = {"", std::string("\0", 1), "\\u0000", "\xed\xa0\x80"};
    process.ranks = {{"RANK", "1"}, {"RANK", "2"}, {"", ""}};
    const Json json =
        Json::parse(report_of({process, OptionValue{"a\"b", "\\"}, OptionValue{"a\"b", "later"},
                               StringDef{1, "\x01"}, ModuleDef{.id = 1, .path = "/lib/\xc3"}}));
    CHECK(json["process"]["executable"] == "/tmp/\"},\xef\xbf\xbd\n</script>");
    CHECK(json["process"]["arguments"][1] == std::string("\0", 1));
    CHECK(json["process"]["arguments"][2] == "\\u0000");
    CHECK(json["process"]["ranks"].size() == 2);
    CHECK(json["process"]["ranks"]["RANK"] == "1");
    CHECK(json["options"] == Json{{"a\"b", "later"}});
    CHECK(json["modules"][1]["path"] == "/lib/\xef\xbf\xbd");
}

namespace {

std::string text_of(double value) {
    StringSink sink;
    memlab::model::JsonOutput json(sink);
    json.number(value);
    json.finish();
    return sink.text.substr(0, sink.text.find('\n'));
}

}  // namespace

TEST_CASE("doubles read back as they were") {
    Random random(2);
    for (int i = 0; i < 1000; ++i) {
        const double value =
            static_cast<double>(random.any()) / static_cast<double>(1 + random.any());
        REQUIRE(Json::parse(text_of(value)).get<double>() == value);
    }
    CHECK(text_of(0) == "0");
    CHECK(text_of(0.1) == "0.1");
    CHECK(text_of(-2.5) == "-2.5");
    CHECK(text_of(1.0 / 3) == "0.3333333333333333");
    CHECK(text_of(1e300) == "1e+300");
    CHECK(text_of(123456789.0) == "123456789");
}

TEST_CASE("dates of the calendar") {
    const auto start_of = [](std::uint64_t wall_ns) {
        ProcessInfo process;
        process.start_wall_ns = wall_ns;
        return Json::parse(report_of({process}))["process"]["start_iso8601"].get<std::string>();
    };
    CHECK(start_of(951782399999999999) == "2000-02-28T23:59:59.999999Z");
    CHECK(start_of(951782400000000000) == "2000-02-29T00:00:00.000000Z");
    CHECK(start_of(1709251200000001000) == "2024-03-01T00:00:00.000001Z");
    CHECK(start_of(4107542400000000000) == "2100-03-01T00:00:00.000000Z");
}

TEST_CASE("a report is written whole, under its own name only") {
    const TemporaryFolder folder;
    Aggregator aggregator;
    feed(PlausibleRecords::make(2, 500), aggregator);
    const std::string path = folder / "report.json";
    const WriteResult first = write_report(aggregator, path);
    REQUIRE(first.error == nothing);
    CHECK(first.ok());
    CHECK(read_text(path) == report_to_string(aggregator));
    CHECK(first.bytes == std::filesystem::file_size(path));
    CHECK(files_in(folder.path()) == 1);

    const WriteResult taken = write_report(Aggregator(), path);
    CHECK(taken.error_number == EEXIST);
    CHECK(taken.error == "cannot write the report '" + path + "': File exists");
    CHECK(read_text(path) == report_to_string(aggregator));
    CHECK(files_in(folder.path()) == 1);

    CHECK(write_report(Aggregator(), path, Existing::replace).ok());
    CHECK(read_text(path) == report_to_string(Aggregator()));
    CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("leftovers of a process that died do not stand in the way") {
    const TemporaryFolder folder;
    const std::string path = folder / "report.json";
    write_file(path + ".tmp." + std::to_string(getpid()), {1, 2, 3});
    CHECK(write_report(Aggregator(), path).ok());
    CHECK(read_text(path) == report_to_string(Aggregator()));
}

TEST_CASE("failures are one sentence, and leave nothing behind") {
    const TemporaryFolder folder;
    const std::string pipe = folder / "pipe";
    REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
    const WriteResult replaced = write_report(Aggregator(), pipe, Existing::replace);
    CHECK(replaced.error ==
          "cannot write the report '" + pipe + "': a device or a pipe is never replaced");
    CHECK(std::filesystem::is_fifo(pipe));
    CHECK(std::filesystem::remove(pipe));
    CHECK(write_report(Aggregator(), folder.path(), Existing::replace).error_number == EISDIR);
    CHECK(files_in(folder.path()) == 0);
    const WriteResult missing = write_report(Aggregator(), folder / "no/such/report.json");
    CHECK(missing.error_number == ENOENT);
    CHECK(missing.error == "cannot write the report '" + (folder / "no/such/report.json") +
                               "': No such file or directory");
    const int full = open("/dev/full", O_WRONLY | O_CLOEXEC);
    REQUIRE(full >= 0);
    const WriteResult disk_full = write_report(Aggregator(), full);
    CHECK(disk_full.error_number == ENOSPC);
    CHECK(disk_full.error == "cannot write the report: No space left on device");
    close(full);

    // Past RLIMIT_FSIZE: an error, not a SIGXFSZ. In a child: the limit is for good.
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit limit{100, 100};
        setrlimit(RLIMIT_FSIZE, &limit);
        const WriteResult result = write_report(Aggregator(), folder / "report.json");
        _exit(result.error_number == EFBIG ? 0 : 1);
    }
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    CHECK(files_in(folder.path()) == 0);
}

TEST_CASE("coverage: said of every recording, so that silence is never taken for a finding") {
    const Json silent = Json::parse(report_of({DeviceInfo{.index = 0}}));
    CHECK(silent["coverage"]["audited"] == false);
    CHECK(silent["coverage"]["because"].get<std::string>().find("MEMLAB_AUDIT") !=
          std::string::npos);
    CHECK(!silent["devices"][0].contains("work"));
    CHECK(!silent["devices"][0].contains("kernels_at_peak"));
    const Records records = {
        DeviceInfo{.index = 0},
        StringDef{.id = 1, .text = "cudaMalloc"},
        StringDef{.id = 2, .text = "CUPTI 13.0.1"},
        StringDef{.id = 3, .text = "gemm"},
        Event{.time_ns = 10, .address = 1, .requested = 100, .size = 100},
        Bypass{.time_ns = 11, .api = 1, .address = 2, .bytes = 50},
        Work{.name = 3, .start_ns = 5, .end_ns = 15},
        Coverage{.time_ns = 12, .audited = true, .cupti = 2, .count = 2, .bytes = 150, .lost = 1}};
    const Json json = Json::parse(report_of(records));
    const Json& coverage = json["coverage"];
    CHECK(coverage["audited"] == true);
    CHECK(coverage["cupti"] == "CUPTI 13.0.1");
    CHECK(coverage["driver_count"] == 2);
    CHECK(coverage["driver_bytes"] == 150);
    CHECK(coverage["lost_records"] == 1);
    CHECK(coverage["bypassed_count"] == 1);
    CHECK(coverage["bypassed_bytes"] == 50);
    CHECK(coverage["bypassed"][0]["api"] == "cudaMalloc");
    const Json& device = json["devices"][0];
    CHECK(device["work"]["kernel"]["busy_ns"] == 10);
    CHECK(device["kernels_at_peak"]["from_ns"] == 10);
    CHECK(device["kernels_at_peak"]["to_ns"] == 12);
    CHECK(device["kernels_at_peak"]["kernels"][0]["name"] == "gemm");
    CHECK(device["kernels_at_peak"]["kernels"][0]["busy_ns"] == 5);
}
