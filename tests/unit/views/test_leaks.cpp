// Leaks and suppressions.
#include <nlohmann/json.hpp>

#include "report/views/leaks.hpp"
#include "tests/catch.hpp"
#include "tests/unit/views/synthetic_report.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

/// forward leaks, a library keeps a workspace, load freed everything.
SyntheticReport leaking() {
    SyntheticReport made;
    made.report.process.ended = "exit";
    made.site({"forward", "step"}, 6 * mib).live_count = 2;
    made.report.sites[0].live_bytes = 3 * mib;
    made.report.modules.push_back({"/opt/nvidia/libcublas.so.13", ""});
    made.report.frames.push_back({1, 0x10, 0});
    made.site({"create"}, 32 * mib).live_count = 1;
    made.report.sites[1].live_bytes = 32 * mib;
    auto& frames = made.report.stacks.back().frames;
    frames.insert(frames.begin(), made.report.frames.size() - 2);
    made.site({"load"}, mib);
    return made;
}

Leaks leaks_of(const Report& report, const std::vector<Suppression>& suppressions,
               const LeakOptions& options = {}) {
    Resolver resolver(report, nullptr);
    return find_leaks(report, resolver, std::vector<bool>(report.sites.size(), true), suppressions,
                      options);
}

std::string problem_of(std::string_view text) {
    const SuppressionList read = parse_suppressions(text);
    CHECK((read.problem.empty() || read.list.empty()));
    return read.problem;
}

}  // namespace

TEST_CASE("what lives at the end is a leak") {
    const SyntheticReport made = leaking();
    const Leaks leaks = leaks_of(made.report, {});
    REQUIRE(leaks.devices.size() == 1);
    CHECK(leaks.devices[0].rows.size() == 2);
    CHECK(leaks.devices[0].leaked.live_bytes == 35 * mib);
    CHECK(leaks.devices[0].suppressions.empty());
}

TEST_CASE("what libraries keep with their handles is none") {
    const SyntheticReport made = leaking();
    const Leaks leaks = leaks_of(made.report, default_suppressions());
    const DeviceLeaks& device = leaks.devices[0];
    REQUIRE(device.rows.size() == 1);
    CHECK(device.rows[0].place.function == "forward");
    CHECK(device.leaked.live_bytes == 3 * mib);
    REQUIRE(device.suppressions.size() == 1);
    CHECK(device.suppressions[0].by->name == "cuBLAS handles");
    CHECK(device.suppressions[0].bytes == 32 * mib);
    LeakOptions options;
    options.style.ascii = true;
    options.style.width = 120;  // folders, too
    const std::string text = render_leaks_text(made.report, leaks, options);
    CHECK(text.find("Still allocated at the end: 3.00 MiB in 2 allocations\n") !=
          std::string::npos);
    CHECK(text.find("Suppressed: 32.00 MiB in 1 allocation\n") != std::string::npos);
    CHECK(text.find("cuBLAS handles: cuBLAS keeps") != std::string::npos);
    CHECK(text.find("/src/create.py") == std::string::npos);
    options.show_suppressed = true;
    CHECK(render_leaks_text(made.report, leaks, options).find("/src/create.py") !=
          std::string::npos);
}

TEST_CASE("each built-in suppression has a name, a reason and a pattern") {
    CHECK(default_suppressions().size() >= 6);
    for (const Suppression& each : default_suppressions()) {
        CHECK(each.built_in);
        CHECK_FALSE(each.name.empty());
        CHECK_FALSE(each.reason.empty());
        CHECK(each.filter.empty() == (each.segments || each.pytorchs_own));
    }
}

TEST_CASE("a file of suppressions") {
    const SuppressionList read = parse_suppressions(
        "# known\r\n\r\n[ masks ]\r\n reason = on purpose = yes\r\nfunc= forward\n"
        "kind = device\n\n[api]\nreason = x\napi = cuMem*");
    REQUIRE(read.problem.empty());
    REQUIRE(read.list.size() == 2);
    CHECK(read.list[0].name == "masks");
    CHECK(read.list[0].reason == "on purpose = yes");
    CHECK(read.list[0].filter.text() == "func=forward, kind=device");
    CHECK(read.list[1].api == "cuMem*");
    const SyntheticReport made = leaking();
    // The first suppression that matches applies.
    const Leaks leaks = leaks_of(made.report, read.list);
    CHECK(leaks.devices[0].rows.empty());
    REQUIRE(leaks.devices[0].suppressions.size() == 2);
    CHECK(leaks.devices[0].suppressions[0].by->name == "api");
    CHECK(leaks.devices[0].suppressions[1].bytes == 3 * mib);
}

TEST_CASE("all patterns of a suppression must match") {
    const SyntheticReport made = leaking();
    const auto left = [&](const std::string& patterns) {
        const SuppressionList read = parse_suppressions("[a]\nreason = b\n" + patterns);
        REQUIRE(read.problem.empty());
        return leaks_of(made.report, read.list).devices[0].rows.size();
    };
    CHECK(left("func = forward\nfile = step.py\n") == 1);
    CHECK(left("func = forward\nfile = load.py\n") == 2);
    CHECK(left("func = forward\nkind = pinned\n") == 2);
    CHECK(left("func = forward\napi = cuMemAllocAsync\n") == 2);
    CHECK(left("module = libcu*.so.*\napi = cuMemAlloc_v2\n") == 1);
}

TEST_CASE("a file with a mistake is refused, and the line is named") {
    CHECK(problem_of("").empty());
    CHECK(problem_of("# nothing\n\n").empty());
    CHECK(problem_of("\nfunc = a\n").find("line 2: is before the first [NAME]") == 0);
    CHECK(problem_of("[a]\nreason = b\n").find("line 1: [a] matches everything") == 0);
    CHECK(problem_of("[a]\nfunc = b\n[c]\n").find("line 1: [a] has no reason") == 0);
    CHECK(problem_of("[a]\nfunction = b\n").find("line 2: takes reason, func,") == 0);
    CHECK(problem_of("[a]\nscope = b\n").find("line 2: takes reason, func,") == 0);
    CHECK(problem_of("[a]\nfunc = b\nfunc = c\n").find("line 3: has func twice") == 0);
    CHECK(problem_of("[a]\nfunc =\n").find("line 2: func is empty") == 0);
    CHECK(problem_of("[a\n").find("line 1: a name ends with ]") == 0);
    CHECK(problem_of("[ ]\n").find("line 1: a suppression needs a name") == 0);
    CHECK(problem_of("[a]\nfunc = b\nreason = c\n[a]\n").find("line 4: [a] is defined twice") == 0);
    CHECK(problem_of("[a]\nhello\n").find("line 2: is neither [NAME] nor KEY = TEXT") == 0);
    CHECK(problem_of(std::string_view("\0\xff[", 3)).find("line 1: is neither") == 0);
}

TEST_CASE("generated suppressions suppress what they were made for, whatever its name") {
    SyntheticReport made;
    made.site({"Matrix<int[3]>::operator*\nreason = gone", "step"}, mib).live_count = 1;
    made.site({}, mib, "pinned").live_count = 1;
    Site& nameless = made.site({" padded "}, mib, "managed");
    nameless.live_count = 1;
    nameless.api = "";
    const std::string text = generate_suppressions(leaks_of(made.report, {}));
    const SuppressionList read = parse_suppressions(text);
    REQUIRE(read.problem.empty());
    CHECK(read.list.size() == 3);
    CHECK(leaks_of(made.report, read.list).devices[0].rows.empty());
    CHECK(generate_suppressions(leaks_of(Report{}, {})).empty());
}

TEST_CASE("growth is suppressed by the user only") {
    SyntheticReport made = leaking();
    made.report.steps.resize(1);
    Steps& steps = made.report.steps[0];
    steps.kind = "mark";
    steps.name = "step";
    steps.steps = 400;
    steps.verdict = "growing";
    steps.growing = {{0, {512, 0, 0, 0, 0}}, {1, {1024, 0, 0, 0, 0}}};
    LeakOptions options;
    options.growth = true;
    options.style.ascii = true;
    const Leaks all = leaks_of(made.report, default_suppressions(), options);
    REQUIRE(all.steps.size() == 1);
    REQUIRE(all.steps[0].rows.size() == 2);
    CHECK(all.steps[0].rows[0].place.function == "create");
    const SuppressionList known = parse_suppressions("[a]\nreason = b\nfunc = create\n");
    const Leaks rest = leaks_of(made.report, known.list, options);
    CHECK(rest.steps[0].suppressed == 1);
    CHECK(render_leaks_text(made.report, rest, options) ==
          "400 steps by mark \"step\"  growing\n"
          "          512 B/step  /src/forward.py:1  forward\n"
          "  [1 suppressed]\n");
}

TEST_CASE("a program that still runs has no leaks yet") {
    SyntheticReport made = leaking();
    made.report.process.ended = "running";
    CHECK(render_leaks_text(made.report, leaks_of(made.report, {}), {})
              .find("not necessarily a leak") != std::string::npos);
}

TEST_CASE("leaks for scripts") {
    const SyntheticReport made = leaking();
    Resolver resolver(made.report, nullptr);
    LeakOptions options;
    options.top = 1;
    const Leaks leaks = leaks_of(made.report, {}, options);
    const auto json =
        nlohmann::json::parse(render_leaks_json("f", made.report, resolver, leaks, options));
    const auto& device = json["devices"][0];
    CHECK(device["leaked"]["live_bytes"] == 35 * mib);
    REQUIRE(device["places"].size() == 1);
    CHECK(device["places"][0]["live_bytes"] == 32 * mib);
    CHECK(device["places"][0]["stack"].size() == 2);
    CHECK(device["others"]["live_bytes"] == 3 * mib);
    CHECK(json["steps"].empty());
}
