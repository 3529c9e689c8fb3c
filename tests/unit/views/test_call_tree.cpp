// Call trees.
#include <nlohmann/json.hpp>

#include "report/views/call_tree.hpp"
#include "tests/catch.hpp"
#include "tests/unit/views/synthetic_report.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

std::vector<CallTree> trees_of(const Report& report, const ViewOptions& options,
                               const TreeOptions& how) {
    Resolver resolver(report, nullptr);
    return call_trees(report, resolver, std::vector<bool>(report.sites.size(), true), options, how);
}

std::string text_of(const Report& report, const TreeOptions& how, std::size_t top = 10) {
    ViewOptions options;
    options.style.ascii = true;
    options.top = top;
    return render_tree_text(trees_of(report, options, how), options, how);
}

/// The frame of the last site at `position` is on line 99 of its function.
void move_to_line_99(SyntheticReport& made, std::size_t position) {
    Report& report = made.report;
    std::size_t& frame = report.stacks.back().frames.at(position);
    report.python_frames.push_back(report.python_frames.at(report.frames.at(frame).python));
    report.python_frames.back().line = 99;
    report.frames.push_back({0, 0, report.python_frames.size() - 1});
    frame = report.frames.size() - 1;
}

SyntheticReport training() {
    SyntheticReport made;
    made.site({"forward", "step", "main"}, 6 * mib);
    made.site({"forward", "validate", "main"}, 3 * mib);
    made.site({"load", "main"}, mib);
    return made;
}

}  // namespace

TEST_CASE("a Python file is one, however its path is spelled") {
    SyntheticReport made = training();
    for (PythonFrame& frame : made.report.python_frames) {
        if (frame.function == "load") {
            frame.function = "forward";
            frame.file = "/src/./layers/../forward.py";
            frame.line = 1;
        }
    }
    CHECK(text_of(made.report, {}).find("load") == std::string::npos);
    CHECK(text_of(made.report, {}).find("100.0%          3  /src/forward.py:1") !=
          std::string::npos);
}

TEST_CASE("bottom-up: places first, and who called them") {
    CHECK(text_of(training().report, {}) ==
          "GPU 0: GPU  bottom-up, by peak\n"
          "      at peak   share      count  where, and who called it\n"
          "     9.00 MiB   90.0%          2  /src/forward.py:1  forward\n"
          "     6.00 MiB   60.0%          1    <- /src/step.py:2  step\n"
          "                                    <- /src/main.py:3  main\n"
          "     3.00 MiB   30.0%          1    <- /src/validate.py:4  validate\n"
          "                                    <- /src/main.py:3  main\n"
          "     1.00 MiB   10.0%          1  /src/load.py:5  load\n"
          "                                  <- /src/main.py:3  main\n"
          "    10.00 MiB  100.0%          3  [all]\n");
}

TEST_CASE("top-down: from main to the places") {
    TreeOptions how;
    how.top_down = true;
    CHECK(text_of(training().report, how) ==
          "GPU 0: GPU  top-down, by peak\n"
          "      at peak   share      count  function, and what it called\n"
          "    10.00 MiB  100.0%          3  /src/main.py  main\n"
          "     6.00 MiB   60.0%          1    -> /src/step.py  step\n"
          "                                    -> /src/forward.py:1  forward\n"
          "     3.00 MiB   30.0%          1    -> /src/validate.py  validate\n"
          "                                    -> /src/forward.py:1  forward\n"
          "     1.00 MiB   10.0%          1    -> /src/load.py:5  load\n"
          "    10.00 MiB  100.0%          3  [all]\n");
}

TEST_CASE("a function that calls from two of its lines") {
    SyntheticReport made;
    made.site({"load", "main"}, mib);
    made.site({"save", "main"}, mib);
    move_to_line_99(made, 1);  // main's second call
    TreeOptions down;
    down.top_down = true;
    const auto trees = trees_of(made.report, {}, down);
    REQUIRE(trees[0].nodes[0].children.size() == 1);
    CHECK(trees[0].nodes[trees[0].nodes[0].children[0]].children.size() == 2);
    CHECK(text_of(made.report, {}).find("<- /src/main.py:99  main") != std::string::npos);
}

TEST_CASE("a function that calls and allocates is one node, with its own lines below") {
    SyntheticReport made;
    made.site({"load", "main"}, 4 * mib);
    made.site({"main"}, 2 * mib);
    made.site({"main"}, mib);
    move_to_line_99(made, 0);
    TreeOptions down;
    down.top_down = true;
    CHECK(text_of(made.report, down) ==
          "GPU 0: GPU  top-down, by peak\n"
          "      at peak   share      count  function, and what it called\n"
          "     7.00 MiB  100.0%          3  /src/main.py  main\n"
          "     4.00 MiB   57.1%          1    -> /src/load.py:1  load\n"
          "     2.00 MiB   28.6%          1    /src/main.py:2  main\n"
          "     1.00 MiB   14.3%          1    /src/main.py:99  main\n"
          "     7.00 MiB  100.0%          3  [all]\n");
    const auto json =
        nlohmann::json::parse(render_tree_json("f", trees_of(made.report, {}, down), {}, down));
    const auto& nodes = json["devices"][0]["nodes"];
    REQUIRE(nodes.size() == 5);
    CHECK((nodes[1]["line"].is_null() && nodes[1]["kind"].is_null() && nodes[1]["self"] == false));
    CHECK((nodes[2]["function"] == "load" && nodes[2]["self"] == false));
    CHECK((nodes[3]["line"] == 2 && nodes[3]["self"] == true && nodes[3]["kind"] == "device"));
}

TEST_CASE("a place is a node for each kind of memory") {
    SyntheticReport made;
    made.site({"load", "main"}, 2 * mib);
    made.site({"load", "main"}, mib, "pinned");
    ViewOptions by_bytes;
    by_bytes.style.ascii = true;
    by_bytes.order = Order::bytes;
    for (const bool top_down : {false, true}) {
        TreeOptions how;
        how.top_down = top_down;
        const std::string text =
            render_tree_text(trees_of(made.report, by_bytes, how), by_bytes, how);
        CHECK(text.find("/src/load.py:1  load\n") != std::string::npos);
        CHECK(text.find("/src/load.py:1  load  [pinned]\n") != std::string::npos);
    }
}

TEST_CASE("small branches and many branches are summed up") {
    TreeOptions how;
    how.min_share = 0.2;
    const std::string small = text_of(training().report, how);
    CHECK(small.find("load") == std::string::npos);
    CHECK(small.find("     1.00 MiB   10.0%          1  [1 other]\n") != std::string::npos);
    how.min_share = 0;
    const std::string few = text_of(training().report, how, 1);
    CHECK(few.find("     3.00 MiB   30.0%          1    [1 other]\n") != std::string::npos);
}

TEST_CASE("a function that calls itself is a node for each call") {
    SyntheticReport made;
    made.site({"f", "f", "f", "main"}, mib);
    const auto trees = trees_of(made.report, {}, {});
    CHECK(trees[0].nodes.size() == 5);
    CHECK(trees[0].frames.size() == 2);
}

TEST_CASE("a long way without branches is shown by its ends") {
    SyntheticReport made;
    std::vector<std::string> functions;
    functions.reserve(30);
    for (int i = 0; i < 30; ++i) {
        functions.push_back("f" + std::to_string(i));
    }
    made.site(functions, mib);
    const std::string text = text_of(made.report, {});
    CHECK(text.find("... 21 calls between\n") != std::string::npos);
    CHECK(text.find("  f5\n") != std::string::npos);
    CHECK(text.find("  f6\n") == std::string::npos);
    CHECK(text.find("  f26\n") == std::string::npos);
    CHECK(text.find("  f27\n") != std::string::npos);
    TreeOptions all;
    all.all_frames = true;
    CHECK(text_of(made.report, all).find("  f15\n") != std::string::npos);
}

TEST_CASE("stacks of any depth, and none") {
    SyntheticReport made;
    made.site({"leaf"}, mib);
    made.report.stacks.back().frames.resize(200'000, made.report.stacks.back().frames.front());
    made.site({}, mib);
    const std::string text = text_of(made.report, {});
    CHECK(text.find("199,991 calls between") != std::string::npos);
    CHECK(text.find("(no stack)") != std::string::npos);
    ViewOptions options;
    const auto json = nlohmann::json::parse(
        render_tree_json("f", trees_of(made.report, options, {}), options, {}));
    CHECK(json["devices"][0]["nodes"].size() == 200'002);
}

TEST_CASE("the figures of a node are the sums of what passes through it") {
    const SyntheticReport made = training();
    ViewOptions options;
    const auto json = nlohmann::json::parse(
        render_tree_json("f", trees_of(made.report, options, {}), options, {}));
    const auto& nodes = json["devices"][0]["nodes"];
    CHECK(nodes[0]["parent"].is_null());
    CHECK(nodes[0]["at_peak_bytes"] == 10 * mib);
    CHECK(nodes[1]["function"] == "forward");
    CHECK(nodes[1]["parent"] == 0);
    CHECK(nodes[1]["share"] == 0.9);
    CHECK(nodes[2]["function"] == "step");
    CHECK(nodes[2]["parent"] == 1);
    CHECK(nodes[2]["depth"] == 2);
}

TEST_CASE("what backward allocates stands beside the forward's own, below its line") {
    SyntheticReport made;
    made.site({"linear", "main"}, 3 * mib);
    made.site({"[forward]", "linear", "main"}, 2 * mib);
    TreeOptions down;
    down.top_down = true;
    CHECK(text_of(made.report, down).find("[forward]\n") != std::string::npos);
    const std::string up = text_of(made.report, {});
    CHECK(up.find("     3.00 MiB   60.0%          1  /src/linear.py:1  linear\n") !=
          std::string::npos);
    CHECK(up.find("     2.00 MiB   40.0%          1  [forward]\n") != std::string::npos);
    CHECK(up.find("<- /src/linear.py:1  linear\n") != std::string::npos);
}
