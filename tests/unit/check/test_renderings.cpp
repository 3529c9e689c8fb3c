// Output for CI servers: no text of a recording can end an element, a cell or a command.
#include <nlohmann/json.hpp>
#include <random>

#include "report/check/render.hpp"
#include "tests/catch.hpp"
#include "tests/unit/check/runs.hpp"

using namespace memlab::report::check;
using memlab::report::RunMember;

namespace {

std::string random_text(std::mt19937& random, const std::string& liked) {
    std::string text;
    const std::size_t size = std::uniform_int_distribution<std::size_t>(0, 24)(random);
    for (std::size_t i = 0; i < size; ++i) {
        const bool special = random() % 2 == 0;
        text += special ? liked[random() % liked.size()] : static_cast<char>(random() % 256);
    }
    return text;
}

std::string unescaped(const std::string& text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '%') {
            out += static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16));
            i += 2;
        } else {
            out += text[i];
        }
    }
    return out;
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + part.size())) {
        ++count;
    }
    return count;
}

/// A run of `processes` that all exceed a limit at a site of the source `file`.
Run failing(std::size_t processes, const std::string& name, const std::string& file) {
    std::vector<RunMember> members;
    for (std::size_t i = 0; i < processes; ++i) {
        RunMember member = member_with_gpu(1000, 1000, i + 1);
        member.report.process.executable = "/bin/" + name;
        memlab::model::Report& report = member.report;
        report.python_frames = {{}, {"forward", file, 12}};
        report.frames.push_back({0, 0, 1});
        memlab::model::Stack stack;
        stack.frames = {0};
        report.stacks.push_back(stack);
        memlab::model::Site site;
        site.kind = "device";
        site.stack = 1;
        report.sites.push_back(site);
        report.devices[0].at_peak.bytes = 1000;
        report.devices[0].at_peak.sites = {{0, 1, 1000}};
        members.push_back(std::move(member));
    }
    return Run(std::move(members));
}

Outcome outcome_of(const Run& run) {
    return run.held_to({limit_of(Metric::peak_allocated, "1")});
}

}  // namespace

TEST_CASE("escaped text of a workflow command comes back, and ends nothing") {
    std::mt19937 random(1);
    for (int i = 0; i < 20'000; ++i) {
        const std::string text = random_text(random, "%\r\n:,;=");
        const std::string property = escaped_property(text);
        const std::string message = escaped_message(text);
        REQUIRE(property.find_first_of("\r\n:,") == std::string::npos);
        REQUIRE(message.find_first_of("\r\n") == std::string::npos);
        REQUIRE(unescaped(property) == text);
        REQUIRE(unescaped(message) == text);
    }
    CHECK(escaped_property("50%, a:b\r\n") == "50%25%2C a%3Ab%0D%0A");
    CHECK(escaped_message("50%, a:b\n") == "50%25, a:b%0A");
}

TEST_CASE("XML and Markdown hold any text") {
    std::mt19937 random(2);
    for (int i = 0; i < 20'000; ++i) {
        const std::string text = random_text(random, "&<>\"'|`]*_\xef\xbf\xbf\n");
        const std::string xml = escaped_xml(text);
        REQUIRE(xml.find_first_of("<>\"'") == std::string::npos);
        for (const char c : xml) {
            REQUIRE(static_cast<unsigned char>(c) >= 0x20);
        }
        REQUIRE(xml.find("\xef\xbf\xbf") == std::string::npos);
        for (std::size_t at = xml.find('&'); at != std::string::npos; at = xml.find('&', at + 1)) {
            REQUIRE(xml.find(';', at) != std::string::npos);
        }
        REQUIRE(escaped_markdown(text).find_first_of("|`<>*_[]\n") == std::string::npos);
    }
    CHECK(escaped_xml("a<b & \"c\"") == "a&lt;b &amp; &quot;c&quot;");
}

TEST_CASE("annotations name the line, below the working directory only") {
    const Run run = failing(1, "app", "/repo/src/a,b:c%.py");
    const Outcome outcome = outcome_of(run);
    CHECK(render_annotations({run.processes, outcome, "/repo", "1"}) ==
          "::error file=src/a%2Cb%3Ac%25.py,line=12,title=memlab%3A peak_allocated::"
          "peak_allocated on GPU 0: 1000 B, 999 B above its limit of 1 B%0A"
          "1000 B  src/a,b:c%25.py:12  forward\n");
    const std::string outside = render_annotations({run.processes, outcome, "/other", "1"});
    CHECK(outside.rfind("::error title=memlab%3A peak_allocated::", 0) == 0);
}

TEST_CASE("there are ten annotations at most, and the tenth says how many more there are") {
    for (const std::size_t processes : {1U, 9U, 10U, 11U, 40U}) {
        const Run run = failing(processes, "app", "/repo/a.py");
        const Outcome outcome = outcome_of(run);
        REQUIRE(outcome.count(Verdict::exceeded) == processes);
        const std::string text = render_annotations({run.processes, outcome, "/repo", "1"});
        CHECK(count_of(text, "\n") == std::min<std::size_t>(processes, 10));
        CHECK(count_of(text, "::error ") == std::min<std::size_t>(processes, 10));
        if (processes > 10) {
            CHECK(text.find("::" + std::to_string(processes - 9) + " more;") != std::string::npos);
        }
    }
}

TEST_CASE("no name of a program breaks a rendering") {
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
        const std::string name = "x" + random_text(random, "<>&\"|\n\r%:,/\\\x1b");
        const Run run = failing(2, name, "/repo/" + name);
        const Outcome outcome = outcome_of(run);
        const View view{run.processes, outcome, "/repo", "1"};
        CHECK(count_of(render_annotations(view), "\n") == 2);
        const std::string junit = render_junit(view);
        CHECK(count_of(junit, "<testcase ") == 2);
        CHECK(count_of(junit, "</testcase>") == 2);
        CHECK(count_of(junit, "<failure ") == 2);
        // Heading, empty line, two lines of the table's head, four rows, empty line.
        CHECK(count_of(render_markdown(view), "\n") == 9);
        memlab::report::Style style;
        const std::string text = render_text(view, style, 3);
        CHECK(text.find('\x1b') == std::string::npos);
        CHECK(text.find('\r') == std::string::npos);
        const auto json = nlohmann::json::parse(render_json(view));
        CHECK(json.at("verdict") == "exceeded");
        CHECK(json.at("processes").size() == 2);
        const auto sarif = nlohmann::json::parse(render_sarif(view));
        const auto& results = sarif.at("runs").at(0).at("results");
        REQUIRE(results.size() == 2);
        const std::string uri = results[0]["locations"][0]["physicalLocation"]["artifactLocation"]
                                    .at("uri")
                                    .get<std::string>();
        CHECK(uri.find_first_of(" <>\"\\^`{|}\r\n") == std::string::npos);
    }
}

TEST_CASE("problems are in every rendering") {
    const Run run({member_with_gpu(1, 1)});
    const Outcome outcome = run.held_to({limit_of(Metric::growth, "0")});
    const View view{run.processes, outcome, "", "1"};
    CHECK(count_of(render_annotations(view), "::error title=memlab::growth") == 1);
    CHECK(count_of(render_junit(view), "<error message=\"growth: ") == 1);
    CHECK(render_markdown(view).find("no steps to tell growth by") != std::string::npos);
    const auto sarif = nlohmann::json::parse(render_sarif(view));
    CHECK(sarif["runs"][0]["invocations"][0]["executionSuccessful"] == false);
    CHECK(nlohmann::json::parse(render_json(view))["problems"].size() == 1);
}
