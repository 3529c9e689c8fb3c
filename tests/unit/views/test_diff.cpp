// Comparison of two reports.
#include <nlohmann/json.hpp>

#include "report/views/diff.hpp"
#include "tests/catch.hpp"
#include "tests/unit/views/synthetic_report.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

/// Resolvers and sides of two reports.
struct Sides {
    Sides(const Report& a, const Report& b)
        : resolver_a(a, nullptr),
          resolver_b(b, nullptr),
          before{"a.json", a, resolver_a, std::vector<bool>(a.sites.size(), true)},
          after{"b.json", b, resolver_b, std::vector<bool>(b.sites.size(), true)} {}

    Diff diff(const DiffOptions& options) const { return diff_reports(before, after, options); }

    Resolver resolver_a;
    Resolver resolver_b;
    DiffSide before;
    DiffSide after;
};

SyntheticReport two_sites() {
    SyntheticReport made;
    made.site({"forward", "step"}, 6 * mib);
    made.site({"load", "main"}, mib);
    made.report.process.ended = "exit";
    return made;
}

std::string text_of(const Sides& sides, DiffOptions options = {}) {
    options.style.ascii = true;
    return render_diff_text(sides.before, sides.after, sides.diff(options), options);
}

}  // namespace

TEST_CASE("changes read as people write them") {
    CHECK(format_change({0, 4 * mib}) == "+4.00 MiB");
    CHECK(format_change({4 * mib, 0}) == "-4.00 MiB");
    CHECK(format_change({5, 5}) == "0 B");
    CHECK(format_count_change({1000, 3234}) == "+2,234");
    CHECK(format_change_percent({200, 100}) == "-50.0%");
    CHECK(format_change_percent({100, 150}) == "+50.0%");
    CHECK(format_change_percent({0, 1}) == "new");
    CHECK(format_change_percent({1, 0}) == "gone");
    CHECK(format_change_percent({0, 0}) == "0.0%");
    CHECK(format_change_percent({1, 1'000'000}).empty());
    CHECK(format_change_percent({1'000'000, 1'000'001}) == "+<0.1%");
}

TEST_CASE("call stacks that part far from the place are told apart") {
    const std::vector<std::string> shared = {"allocate_a_large_tensor", "dispatch_to_the_backend",
                                             "call_the_operator", "run_the_module"};
    const auto stack = [&](const std::vector<std::string>& callers) {
        std::vector<std::string> all = shared;
        all.insert(all.end(), callers.begin(), callers.end());
        return all;
    };
    SyntheticReport before;
    before.site({"other", "main"}, mib);
    SyntheticReport after = before;
    after.site(stack({"forward", "main"}), 8 * mib);
    after.site(stack({"backward", "first_step", "main"}), 4 * mib);
    after.site(stack({"backward", "later_step", "main"}), 2 * mib);
    const std::string text = text_of({before.report, after.report});
    CHECK(text.find("a_large_tensor <- ... <- forward\n") != std::string::npos);
    CHECK(text.find("_large_tensor <- ... <- first_step\n") != std::string::npos);
    CHECK(text.find("_large_tensor <- ... <- later_step\n") != std::string::npos);
    const Sides sides(before.report, after.report);
    const std::string markdown =
        render_diff_markdown(sides.before, sides.after, sides.diff({}), {});
    CHECK(markdown.find("← … ← forward |\n") != std::string::npos);
    CHECK(markdown.find("← … ← backward ← first&#95;step |\n") != std::string::npos);
}

TEST_CASE("callers whose short names are equal are told apart by all of theirs") {
    SyntheticReport before;
    before.site({"other", "main"}, mib);
    SyntheticReport after = before;
    after.site({"allocate", "step", "main"}, 8 * mib);
    after.site({"allocate", "step", "main"}, 4 * mib);
    // A function of the same name in another file.
    after.report.python_frames.push_back(after.report.python_frames[4]);
    after.report.python_frames.back().file = "/src/other_step.py";
    after.report.frames.push_back({0, 0, after.report.python_frames.size() - 1});
    after.report.stacks.back().frames.at(1) = after.report.frames.size() - 1;
    const std::string text = text_of({before.report, after.report});
    CHECK(text.find("<- step (step.py) <- main\n") != std::string::npos);
    CHECK(text.find("<- step (other_step.py)\n") != std::string::npos);
}

TEST_CASE("code that moved, in another folder, is the same site") {
    SyntheticReport a = two_sites();
    SyntheticReport b = two_sites();
    for (PythonFrame& frame : b.report.python_frames) {
        frame.line += 100;
        frame.file = "/elsewhere" + frame.file;
    }
    b.report.sites[0].at_peak_bytes = 9 * mib;
    const Sides sides(a.report, b.report);
    const Diff diff = sides.diff({});
    REQUIRE(diff.devices.size() == 1);
    REQUIRE(diff.devices[0].sites.size() == 1);
    CHECK(diff.devices[0].sites[0].before.peak_bytes == 6 * mib);
    CHECK(diff.devices[0].sites[0].after.peak_bytes == 9 * mib);
    CHECK(diff.devices[0].sites[0].place.line == 101);
    CHECK(diff.devices[0].unchanged == 1);
    CHECK(text_of(sides).find("      +3.00 MiB   +50.0%  /elsewhere/src/forward.py:101  forward <- "
                              "step\n") != std::string::npos);
}

TEST_CASE("another function, another file, another kind is another site") {
    SyntheticReport a = two_sites();
    SyntheticReport b;
    b.site({"forward", "validate"}, 6 * mib);
    b.site({"load", "main"}, mib, "array");
    const Sides sides(a.report, b.report);
    const Diff diff = sides.diff({});
    CHECK(diff.devices[0].sites.size() == 4);
    CHECK(text_of(sides).find("new") != std::string::npos);
    CHECK(text_of(sides).find("gone") != std::string::npos);
    DiffOptions by_place;
    by_place.by_place = true;
    CHECK(sides.diff(by_place).devices[0].sites.size() == 2);  // forward did not change
    CHECK(sides.diff(by_place).devices[0].unchanged == 1);
}

TEST_CASE("what is left out is summed up, and the total is of everything") {
    SyntheticReport a = two_sites();
    SyntheticReport b;
    b.site({"forward", "step"}, 10 * mib);
    b.site({"load", "main"}, 3 * mib);
    b.site({"save", "main"}, mib);
    const Sides sides(a.report, b.report);
    DiffOptions options;
    options.top = 1;
    const std::string text = text_of(sides, options);
    CHECK(text.find("      +3.00 MiB  +300.0%  [2 others]\n") != std::string::npos);
    CHECK(text.find("      +7.00 MiB  +100.0%  [total]\n") != std::string::npos);
    const auto json = nlohmann::json::parse(
        render_diff_json(sides.before, sides.after, sides.diff(options), options));
    const auto& device = json["devices"][0];
    CHECK(device["sites"].size() == 1);
    CHECK(device["sites"][0]["change"] == 4 * mib);
    CHECK(device["others"]["sites"] == 2);
    CHECK(device["others"]["change"] == 3 * mib);
    CHECK(device["after"]["at_peak_bytes"] == 14 * mib);
}

TEST_CASE("a GPU that only one of them used") {
    SyntheticReport a = two_sites();
    SyntheticReport b = two_sites();
    b.report.devices.push_back(b.report.devices[0]);
    b.report.devices[1].index = 1;
    const Sides sides(a.report, b.report);
    const Diff diff = sides.diff({});
    REQUIRE(diff.devices.size() == 2);
    CHECK(diff.devices[0].unchanged == 2);
    CHECK(diff.devices[1].before.peak_bytes == 0);
    DiffOptions one;
    one.device = 1;
    CHECK(sides.diff(one).devices.size() == 1);
}

TEST_CASE("the only GPU of each is compared, whatever its index") {
    const auto on = [](std::uint64_t gpu, std::uint64_t allocator_index) {
        SyntheticReport made = two_sites();
        Device cache = made.report.devices[0];
        cache.index = allocator_index * 64 + gpu;
        cache.allocator = "PyTorch";
        cache.on_gpu = static_cast<decltype(cache.on_gpu)::value_type>(gpu);
        made.report.devices[0].index = gpu;
        made.report.devices.push_back(cache);
        made.report.devices.push_back({});  // not used
        made.report.devices.back().index = 7;
        made.report.sites[0].device = cache.index;
        made.report.sites[1].device = gpu;
        return made;
    };
    const SyntheticReport a = on(0, 1);
    const SyntheticReport b = on(3, 2);
    const Sides sides(a.report, b.report);
    const Diff diff = sides.diff({});
    REQUIRE(diff.devices.size() == 2);
    CHECK(diff.devices[0].label == "PyTorch on GPU 0, then PyTorch on GPU 3");
    CHECK(diff.devices[1].label == "GPU 0, then GPU 3");
    CHECK(diff.devices[0].index == 131);
    CHECK(diff.devices[0].index_before == 64);
    CHECK(diff.devices[1].index == 3);
    CHECK(diff.devices[1].index_before == 0);
    for (const DeviceDiff& device : diff.devices) {
        CHECK(device.unchanged == 1);
        CHECK(device.sites.empty());
    }
    REQUIRE(diff.notes.size() == 1);
    CHECK(diff.notes[0] == "Each used one GPU: GPU 0 before is compared with GPU 3 after.");
    const auto json = nlohmann::json::parse(render_diff_json(sides.before, sides.after, diff, {}));
    CHECK(json["devices"][1]["index_before"] == 0);
    CHECK(json["notes"] == diff.notes);
    for (const std::uint64_t gpu : {0, 3}) {  // of either
        DiffOptions one;
        one.device = gpu;
        CHECK(sides.diff(one).devices.size() == 2);
    }
    // As they are where the index is the same.
    CHECK(Sides(a.report, a.report).diff({}).devices[1].label == "GPU 0");
    CHECK_FALSE(Sides(a.report, a.report).diff({}).devices[1].index_before);
}

TEST_CASE("callers are shown before folders, since they tell stacks apart") {
    const SyntheticReport a;
    SyntheticReport c;
    c.site({"new_tensor", "forward_layer", "main"}, mib);
    c.report.python_frames[1].file = "/a/long/way/to/the/samples/of/it/sample.cu";
    CHECK(text_of({a.report, c.report})
              .find("  sample.cu:1  new_tensor <- forward_layer <- main\n") != std::string::npos);
}

TEST_CASE("scopes by their path") {
    SyntheticReport a = two_sites();
    SyntheticReport b = two_sites();
    for (SyntheticReport* made : {&a, &b}) {
        made->report.scopes.resize(2);
        made->report.scopes[0].name = "train";
        made->report.scopes[1].name = "forward";
        made->report.scopes[1].parent = 0;
        made->report.scopes[1].peak_growth_bytes = mib;
    }
    b.report.scopes[1].peak_growth_bytes = 3 * mib;
    const Sides sides(a.report, b.report);
    const Diff diff = sides.diff({});
    REQUIRE(diff.scopes.size() == 1);
    CHECK(diff.scopes[0].path == "train/forward");
    CHECK(diff.scopes[0].peak_growth_bytes == Change{mib, 3 * mib});
    CHECK(diff.unchanged_scopes == 1);
    CHECK(text_of(sides).find("+2.00 MiB  +200.0%") != std::string::npos);
}

TEST_CASE("what makes it less than exact is said") {
    SyntheticReport a = two_sites();
    SyntheticReport b = two_sites();
    b.report.process.ended = "cut off";
    b.report.log.dropped = 7;
    const auto notes = Sides(a.report, b.report).diff({}).notes;
    REQUIRE(notes.size() == 2);
    CHECK(notes[0].find("b.json was cut off") == 0);
    CHECK(notes[1].find("b.json: The recording stopped") == 0);
    CHECK(notes[1].find("lacks 7 later events") != std::string::npos);
}

TEST_CASE("addresses of different builds are not taken for names") {
    const auto build = [](const std::string& id, std::uint64_t address) {
        SyntheticReport made;
        made.report.process.ended = "exit";
        made.report.modules.push_back({"/opt/app", id});
        made.report.frames.push_back({1, address, 0});
        made.report.stacks.push_back({{made.report.frames.size() - 1}, false});
        made.site({}, mib).stack = made.report.stacks.size() - 1;
        return made;
    };
    const SyntheticReport a = build("aa", 0x10);
    const SyntheticReport moved = build("bb", 0x20);
    CHECK(Sides(a.report, moved.report).diff({}).devices[0].sites.size() == 2);
    CHECK(Sides(a.report, moved.report).diff({}).notes.size() == 1);
    CHECK(Sides(a.report, a.report).diff({}).devices[0].unchanged == 1);
    CHECK(Sides(a.report, a.report).diff({}).notes.empty());
}

TEST_CASE("nothing at all") {
    const Report none;
    CHECK(text_of({none, none}).find("Neither allocated GPU memory.") != std::string::npos);
}
