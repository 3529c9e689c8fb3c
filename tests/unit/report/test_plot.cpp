// The plot: peaks are never lost, areas differ without colour, the frame is exact.
#include <algorithm>
#include <limits>

#include "report/text/plot.hpp"
#include "report/text/terminal.hpp"
#include "tests/catch.hpp"

using namespace memlab::model;

using namespace memlab::report;

namespace {

constexpr std::uint64_t mib = 1 << 20;

std::string joined(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += line + "\n";
    }
    return text;
}

}  // namespace

TEST_CASE("the seed's four lines as a picture") {
    PlotOptions options;
    options.width = 40;
    options.height = 4;
    options.ascii = true;
    const std::vector<PlotPoint> points = {
        {0, 0, 0}, {250, 5 * mib, 20 * mib}, {500, 0, 20 * mib}, {750, 0, 0}};
    // clang-format off
    const std::string expected =
        "20.00 MiB +       ...............\n"
        "          |       ...............\n"
        "10.00 MiB +       ...............\n"
        "          |       ########.......\n"
        " 0.00 MiB +-----------------------------\n"
        "           1      2      3\n"
        "           0 s        500 ns      1.0 us\n";
    // clang-format on
    CHECK(joined(plot_timeline(points, 1000, {{0, '1'}, {250, '2'}, {500, '3'}}, options)) ==
          expected);
}

TEST_CASE("a peak of one nanosecond in an hour is drawn at full height") {
    PlotOptions options;
    options.height = 5;
    const std::uint64_t hour = 3'600'000'000'000;
    const std::vector<PlotPoint> points = {
        {0, mib, 2 * mib}, {hour / 2, 100 * mib, 100 * mib}, {hour / 2 + 1, mib, 2 * mib}};
    const auto lines = plot_timeline(points, hour, {}, options);
    REQUIRE(lines.size() == 7);
    CHECK(lines[0].find("100.00 MiB") == 0);
    CHECK(lines[0].find("█") != std::string::npos);
    // Values other than 0 are drawn, however small.
    CHECK(lines[4].find("▁") != std::string::npos);
}

TEST_CASE("no line is wider than asked for, in any size") {
    const std::vector<PlotPoint> points = {
        {0, 0, 0}, {10, 1, 2}, {20, 123'456'789, 987'654'321}, {30, 7, 7}};
    for (int width = 40; width <= 120; width += 7) {
        for (int height = 2; height <= 12; ++height) {
            for (const bool ascii : {false, true}) {
                PlotOptions options;
                options.width = width;
                options.height = height;
                options.ascii = ascii;
                std::size_t widest = 0;
                for (const std::string& line : plot_timeline(points, 40, {{40, 'X'}}, options)) {
                    widest = std::max(widest, display_width(line));
                }
                CHECK(widest == static_cast<std::size_t>(width));
            }
        }
    }
}

TEST_CASE("ASCII means ASCII") {
    PlotOptions options;
    options.ascii = true;
    const std::string text = joined(plot_timeline({{0, 3, 9}, {5, 9, 9}}, 10, {}, options));
    CHECK(std::all_of(text.begin(), text.end(), [](char c) { return c > 0; }));
}

TEST_CASE("colour wraps the areas and nothing else") {
    PlotOptions options;
    options.height = 2;
    const std::vector<PlotPoint> points = {{0, 5, 10}};
    const std::string plain = joined(plot_timeline(points, 10, {}, options));
    options.allocated_color = "\x1b[36m";
    options.reserved_color = "\x1b[2m";
    options.reset = "\x1b[0m";
    std::string colored = joined(plot_timeline(points, 10, {}, options));
    CHECK(colored != plain);
    for (const std::string escape : {"\x1b[36m", "\x1b[2m", "\x1b[0m"}) {
        for (std::size_t at = colored.find(escape); at != std::string::npos;
             at = colored.find(escape)) {
            colored.erase(at, escape.size());
        }
    }
    CHECK(colored == plain);
}

TEST_CASE("nothing to draw gives no lines") {
    CHECK(plot_timeline({}, 10, {}, {}).empty());
    CHECK(plot_timeline({{0, 0, 0}, {5, 0, 0}}, 10, {}, {}).empty());
}

TEST_CASE("extreme and disordered values stay within the frame") {
    const std::uint64_t most = std::numeric_limits<std::uint64_t>::max();
    PlotOptions options;
    options.ascii = true;
    for (const std::string& line :
         plot_timeline({{most, most, 1}, {0, 1, most}, {most, 0, 0}, {5, most, most}}, most,
                       {{most, 'X'}, {0, '1'}}, options)) {
        CHECK(display_width(line) <= 80);
    }
}

TEST_CASE(
    "marks that share a column, or whose digits would touch, become signs; an OOM is never "
    "hidden") {
    PlotOptions options;
    options.ascii = true;
    const auto lines =
        plot_timeline({{0, 1, 1}}, 1000, {{0, '1'}, {1, '2'}, {999, 'X'}, {998, '3'}}, options);
    const std::string& row = lines[lines.size() - 2];
    CHECK(std::count(row.begin(), row.end(), '^') == 1);
    CHECK(row.back() == 'X');
    options.width = 60;
    const auto close =
        plot_timeline({{0, 1, 1}}, 1000, {{0, '1'}, {499, '2'}, {515, '3'}, {800, '4'}}, options);
    const std::string& digits = close[close.size() - 2];
    CHECK(std::count(digits.begin(), digits.end(), '^') == 2);
    CHECK(digits.find('2') == std::string::npos);
    CHECK(digits.find('4') != std::string::npos);
}

TEST_CASE("the pictures of a stretch begin where it begins") {
    PlotOptions options;
    options.width = 40;
    options.height = 2;
    options.ascii = true;
    options.from_ns = 1'000'000;
    const auto lines = plot_timeline(
        {{1'000'000, 4 * mib, 4 * mib}, {1'050'000, 0, 0}, {1'099'999, 0, 0, 0, 8 * mib}},
        1'100'000, {{900'000, '1'}, {1'200'000, '2'}}, options);
    REQUIRE(lines.size() == 5);
    CHECK(lines[0].find("8.00 MiB") == 0);
    CHECK(lines[0].back() == '~');
    CHECK(lines[1].find("###############") != std::string::npos);
    // Points outside the time axis are shown at its edge.
    CHECK(lines[3].find('1') == 10);
    CHECK(lines[3].back() == '2');
    CHECK(lines[4].find("1.00 ms") == 10);
    CHECK(lines[4].find("+100.0 us") != std::string::npos);
}

TEST_CASE("freed and not reusable lies between allocated and reserved") {
    PlotOptions options;
    options.width = 40;
    options.height = 4;
    const auto lines = plot_timeline({{0, mib, 4 * mib, 2 * mib}}, 1000, {}, options);
    REQUIRE(lines.size() == 6);
    CHECK(lines[1].find("░") != std::string::npos);
    CHECK(lines[2].find("▒") != std::string::npos);
    CHECK(lines[3].find("█") != std::string::npos);
}

TEST_CASE("spans are bars in the rows of their lanes") {
    PlotOptions options;
    options.width = 50;
    options.height = 2;
    options.ascii = true;
    const std::vector<PlotPoint> points = {{0, mib, mib}};
    const auto rows = [&](const std::vector<PlotSpan>& spans) {
        auto lines = plot_timeline(points, 1000, {}, options, spans);
        lines.erase(lines.begin(), lines.begin() + 3);
        lines.pop_back();
        return joined(lines);
    };
    CHECK(rows({{0, 1000, "train", 0}, {100, 500, "step", 1}, {500, 900, "step", 1}}) ==
          "          [train---------------------------------]\n"
          "              [step----------][step-----------]\n");
    // Outside the time axis, of no length, and many in one column.
    CHECK(rows({{0, 100'000, "forever", 0}}) ==
          "          [forever-------------------------------]\n");
    CHECK(rows({{500, 500, "now", 0}}) == "now                           |\n");
    std::vector<PlotSpan> many;
    for (std::uint64_t at = 0; at < 1000; at += 2) {
        many.push_back({at, at + 1, "tick", 0});
    }
    CHECK(rows(many) == "tick      [======================================]\n");
    CHECK(rows({{2000, 3000, "later", 0}}).empty());
    // Names that a bar has are not repeated; the others are cut to the room beside the axis.
    CHECK(rows({{0, 400, "step", 0},
                {500, 505, "step", 0},
                {600, 605, "load", 0},
                {700, 705, "checkpoint", 0}}) == "load,...  [step-----------]   |   |   |\n");
}

TEST_CASE("layers lie on each other, and a column shows the highest sum of its time") {
    PlotOptions options;
    options.width = 40;
    options.height = 4;
    options.ascii = true;
    const std::vector<PlotLayer> layers = {{"P", ""}, {"A", ""}};
    // The second point is the highest of its column; the last one is lower than half a cell.
    const std::vector<PlotStack> points = {
        {0, {5 * mib, 0}}, {250, {5 * mib, 15 * mib}}, {500, {10 * mib, 5 * mib}}, {750, {mib, 0}}};
    // clang-format off
    const std::string expected =
        "20.00 MiB +       AAAAAAAA\n"
        "          |       AAAAAAAAAAAAAAA\n"
        "10.00 MiB +       AAAAAAAAPPPPPPP\n"
        "          |PPPPPPPPPPPPPPPPPPPPPPPPPPPPP\n"
        " 0.00 MiB +-----------------------------\n"
        "           0 s        500 ns      1.0 us\n";
    // clang-format on
    CHECK(joined(plot_stacks(points, layers, 1000, {}, options)) == expected);
    CHECK(plot_stacks({{0, {0, 0}}}, layers, 1000, {}, options).empty());
}
