// Validation: reports written by memlab are sound, and a change of any sum is detected. Embedded
// symbols are kept, preferred, and change nothing else.
#include "report/reading/validate.hpp"

#include <functional>
#include <nlohmann/json.hpp>

#include "model/json_writer.hpp"
#include "report/symbols/embed_symbols.hpp"
#include "report/symbols/resolver.hpp"
#include "tests/catch.hpp"
#include "tests/unit/trace/recording.hpp"

using namespace memlab;
using nlohmann::json;
using report::DeriveResult;

namespace {

std::string report_of(const test::Records& records) {
    trace::Aggregator aggregator;
    test::feed(records, aggregator);
    return model::report_to_string(aggregator);
}

report::Validation validation_of(const std::string& text) {
    DeriveResult read;
    read.json = text;
    read.model = report::parse_report(text);
    return report::validate(read);
}

std::string first_problem(const std::string& text) {
    const report::Validation found = validation_of(text);
    return found.sound() ? "" : found.problems.front();
}

/// A report with an example of everything.
json plausible() {
    return json::parse(report_of(test::PlausibleRecords::make(1, 3000, true)));
}

void add_one(json& number) {
    number = number.get<std::uint64_t>() + 1;
}

}  // namespace

TEST_CASE("whatever a program does, its report is sound") {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        CAPTURE(seed);
        CHECK(first_problem(report_of(test::PlausibleRecords::make(seed, 2000, seed % 2 == 0))) ==
              test::nothing);
        // Random figures: they need not be consistent, but validating them must be safe.
        CHECK_NOTHROW(first_problem(report_of(test::WildRecords::make(seed, 2000, true))));
    }
    CHECK(first_problem(report_of({})).empty());
}

TEST_CASE("each figure that is changed shows") {
    const json good = plausible();
    REQUIRE(first_problem(good.dump()).empty());
    REQUIRE_FALSE(good["devices"][0]["live"]["sites"].empty());
    const std::vector<std::function<void(json&)>> changes = {
        [](json& r) { add_one(r["sites"][0]["id"]); },
        [](json& r) { add_one(r["sites"][0]["count"]); },
        [](json& r) { add_one(r["sites"][0]["bytes"]); },
        [](json& r) { add_one(r["sites"][0]["live_bytes"]); },
        [](json& r) { r["sites"][0]["live_count"] = ~0ULL; },
        [](json& r) { r["sites"][0]["temporaries"] = ~0ULL; },
        [](json& r) { r["sites"][0]["peak_bytes"] = ~0ULL; },
        [](json& r) { r["sites"][0]["device"] = 77; },
        [](json& r) { r["sites"][0].erase("id"); },
        [](json& r) { add_one(r["devices"][0]["curves"]["allocated"]["peak_bytes"]); },
        [](json& r) { add_one(r["devices"][0]["curves"]["allocated"]["at_end_bytes"]); },
        [](json& r) { add_one(r["devices"][0]["curves"]["reserved"]["peak_bytes"]); },
        [](json& r) { add_one(r["devices"][0]["at_peak"]["bytes"]); },
        [](json& r) { add_one(r["devices"][0]["at_peak"]["count"]); },
        [](json& r) { add_one(r["devices"][0]["at_peak"]["sites"][0]["bytes"]); },
        [](json& r) { add_one(r["devices"][0]["live"]["other"]["bytes"]); },
        [](json& r) { add_one(r["devices"][0]["kinds"].front()["count"]); },
        [](json& r) { add_one(r["devices"][0]["kinds"].front()["live_bytes"]); },
        [](json& r) { r["devices"][0]["timeline"]["rows"] = json::array(); },
        [](json& r) { add_one(r["devices"][0]["kind_curves"].front()["peak_bytes"]); },
        [](json& r) { add_one(r["devices"][0]["kind_curves"].front()["live"]["other"]["bytes"]); },
        [](json& r) { r["devices"][0]["kind_curves"].front()["rows"] = json::array(); },
        [](json& r) { r["stacks"][0]["frames"] = {0}; },
        [](json& r) { r["modules"][0]["path"] = "/bin/x"; },
        [](json& r) {
            r["oom_count"] = 0;
            r["ooms"].push_back(r["ooms"].front());
        },
        [](json& r) { r["mark_count"] = 0; },
        [](json& r) { add_one(r["coverage"]["bypassed_bytes"]); },
    };
    for (std::size_t i = 0; i < changes.size(); ++i) {
        CAPTURE(i);
        json changed = good;
        changes[i](changed);
        REQUIRE(changed != good);
        CHECK_FALSE(first_problem(changed.dump()).empty());
    }
}

TEST_CASE("many problems are counted, not all listed") {
    json bad = plausible();
    for (json& site : bad["sites"]) {
        site["id"] = 1'000'000;
    }
    const report::Validation found = validation_of(bad.dump());
    CHECK(found.problems.size() == 5);
    CHECK(found.problems.size() + found.more >= bad["sites"].size());
}

TEST_CASE("what cannot be read is not sound") {
    CHECK(first_problem("").find("ends in the middle") == 0);
    CHECK(first_problem("{}").find("not a memlab report") != std::string::npos);
    DeriveResult read;
    read.error = "no such file; check the name";
    CHECK(report::validate(read).problems.front() == read.error);
}

TEST_CASE("a damaged log is not sound, though a report comes of it") {
    DeriveResult read;
    read.json = plausible().dump();
    read.model = report::parse_report(read.json);
    read.from_log = true;
    read.warning = "The event log is damaged at byte 9.";
    CHECK(report::validate(read).problems.front().find(read.warning) == 0);
}

TEST_CASE("a report and its log differ where figures do, and only there") {
    json log = plausible();
    log["log"]["dropped"] = 0;
    log["process"]["ended"] = "cut off";
    json report = log;
    report["process"]["signal"] = "SIGKILL";
    report["frames"][0]["source"] = {
        {{"function", "f"}, {"file", ""}, {"line", 0}, {"inlined", false}}};
    CHECK(report::find_difference(report.dump(), log.dump()).empty());
    add_one(report["sites"][0]["peak_time_ns"]);
    CHECK(report::find_difference(report.dump(), log.dump()) == "/sites/0/peak_time_ns");
    // A log that lost events cannot be compared.
    log["log"]["dropped"] = 3;
    CHECK(report::find_difference(report.dump(), log.dump()).empty());
}

TEST_CASE("embedding symbols twice changes nothing, and once nothing but frames") {
    const json before = plausible();
    report::Symbolizer symbolizer;
    const report::EmbedResult once = report::embed_symbols(before.dump(), symbolizer);
    REQUIRE(once.error.empty());
    const report::EmbedResult twice = report::embed_symbols(once.json, symbolizer);
    CHECK(twice.json == once.json);
    json after = json::parse(once.json);
    for (json& frame : after["frames"]) {
        frame.erase("source");
    }
    CHECK(after == before);
    CHECK_FALSE(report::embed_symbols("{", symbolizer).error.empty());
}

TEST_CASE("a name that the report carries comes first, also where the binary is gone") {
    model::Report report;
    report.modules = {{}, {"/gone/app", "ab12"}};
    report.frames = {{1, 0x10, 0, {}}, {1, 0x20, 0, {}}};
    report.frames[0].source = {{"inner(int)", "/src/a.cpp", 3, true},
                               {"outer()", "/src/a.cpp", 9, false}};
    report.stacks = {{}, {{0, 1}, false}};
    report::Symbolizer symbolizer;
    report::Resolver resolver(report, &symbolizer);
    const auto& frames = resolver.frames(1);
    REQUIRE(frames.size() == 3);
    CHECK(frames[0].function == "inner(int)");
    CHECK(frames[0].inlined);
    CHECK(frames[1].line == 9);
    CHECK(frames[1].problem.empty());
    CHECK(frames[2].problem == "file not found");
    CHECK(resolver.place(1).function == "inner");
    CHECK(resolver.place(1).file == "/src/a.cpp");
    // Without symbolization there are no names.
    report::Resolver plain(report, nullptr);
    CHECK(plain.frames(1)[0].function.empty());
}
