// The screens: at every size each has its rows, no line is wider, and what matters is there.
#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"
#include "tools/top/list_view.hpp"
#include "tools/top/process_view.hpp"

namespace memlab::tools {
namespace {

using Catch::Matchers::ContainsSubstring;

LiveSite site_of(const std::string& function, std::uint64_t bytes, std::vector<std::string> path) {
    LiveSite site;
    site.place.recorded = true;
    site.place.function = function;
    site.place.file = "/src/train.py";
    site.place.line = 42;
    site.kind = "device";
    site.bytes = bytes;
    site.count = 3;
    site.path = std::move(path);
    return site;
}

Details some_details() {
    Details details;
    details.now.sites = {site_of("forward", 8 * gib, {"main", "train", "forward"}),
                         site_of("backward", 4 * gib, {"main", "train", "backward"})};
    details.now.other_sites = 2;
    details.now.other_bytes = mib;
    details.nn_modules = {{"encoder.0", "Linear", 3 * gib, 7}};
    model::PoolDocument::Gpu pool;
    pool.segment_count = 4;
    pool.reserved_bytes = 84 * mib;
    pool.active_bytes = 50 * mib;
    pool.pending_bytes = 2 * mib;
    pool.empty_count = 2;
    pool.empty_bytes = 4 * mib;
    pool.segments = {{20 * mib, 2 * mib, 2 * mib, 2, "#o" + std::string(62, '.')}};
    details.pool.emplace().gpus = {pool};
    return details;
}

History some_history() {
    History history;
    for (std::uint64_t i = 1; i <= 30; ++i) {
        MachineSample sample = join(small_machine());
        sample.time_ns = i * 1'000'000'000;
        sample.host = "node\x1b[31m1";
        history.add(std::move(sample));
    }
    return history;
}

std::string text_of(const std::vector<Line>& lines) {
    std::string text;
    for (const Line& line : lines) {
        text += line.text() + "\n";
    }
    return text;
}

TEST_CASE("every screen fits, at any size", "[top]") {
    const History history = some_history();
    const DetailsOf details = {{4711, some_details()}};
    for (const std::size_t rows : {2U, 5U, 10U, 24U, 60U}) {
        for (const std::size_t columns : {20U, 40U, 80U, 100U, 200U}) {
            for (const bool ascii : {true, false}) {
                const Screen screen{rows, columns, ascii, true};
                ViewState state;
                std::vector<std::vector<Line>> screens = {
                    list_screen(history, rows_of(history, state, true), state, details, screen),
                    help_screen(screen)};
                for (std::size_t page = 0; page < process_pages; ++page) {
                    state.chosen = 4711;
                    state.page = static_cast<ProcessPage>(page);
                    state.scroll = 1000;
                    screens.push_back(process_screen(history, state, details.at(4711), screen));
                    CHECK(state.scroll < 1000);
                }
                for (const std::vector<Line>& lines : screens) {
                    CHECK(lines.size() == rows);
                    for (const Line& line : lines) {
                        // A picture has at least 40 columns.
                        CHECK(line.width() <= std::max<std::size_t>(columns, 20));
                        CHECK(line.text().find('\x1b') == std::string::npos);
                    }
                }
            }
        }
    }
}

TEST_CASE("the list has GPUs, processes and what holds the memory of the chosen one", "[top]") {
    const History history = some_history();
    ViewState state;
    const Screen screen{24, 80, true, true};
    const std::string text = text_of(list_screen(history, rows_of(history, state, true), state,
                                                 {{4711, some_details()}}, screen));
    CHECK(state.chosen == 4711);
    CHECK_THAT(text, ContainsSubstring("3 processes, 1 under memlab"));
    CHECK_THAT(text, ContainsSubstring("40.0G/141G"));
    CHECK_THAT(text, ContainsSubstring("   4711 alice       0  20.0G  12.0G  19.0G"));
    CHECK_THAT(text, ContainsSubstring("[parent gone] python3"));
    CHECK_THAT(text, ContainsSubstring("held by process 4711, now"));
    CHECK_THAT(text, ContainsSubstring("8.0G  /src/train.py:42  forward"));
    CHECK_THAT(text, ContainsSubstring("3.0G  encoder.0 (Linear)"));
    CHECK_THAT(text, ContainsSubstring("q quit"));
}

TEST_CASE("pages of a process", "[top]") {
    const History history = some_history();
    ViewState state;
    state.chosen = 4711;
    state.looks_into = true;
    const Screen screen{40, 100, true, true};
    const auto page = [&](ProcessPage which) {
        state.page = which;
        return text_of(process_screen(history, state, some_details(), screen));
    };
    CHECK_THAT(page(ProcessPage::timeline), ContainsSubstring("allocated (dark)"));
    CHECK_THAT(page(ProcessPage::sites), ContainsSubstring("in 2 other sites"));
    const std::string tree = page(ProcessPage::tree);
    CHECK_THAT(tree, ContainsSubstring("12.0G  main\n   12.0G  train\n    8.0G    forward\n"
                                       "    4.0G    backward\n"));
    CHECK_THAT(page(ProcessPage::nn_modules), ContainsSubstring("encoder.0 (Linear)"));
    const std::string map = page(ProcessPage::map);
    CHECK_THAT(map, ContainsSubstring("= cached"));
    CHECK_THAT(map, ContainsSubstring("memlab's pool: 4 segments, 84.0M reserved"));
    CHECK_THAT(map, ContainsSubstring("   20.00 MiB   16.00 MiB       2  #o......"));
    CHECK_THAT(map, ContainsSubstring("               12.00 MiB          [1 segment more]"));
    CHECK_THAT(map, ContainsSubstring("    4.00 MiB    4.00 MiB       0  [2 empty segments]"));
    state.since_mark = true;
    CHECK_THAT(page(ProcessPage::sites), ContainsSubstring("There is no mark yet"));
    state.chosen = 4712;
    CHECK_THAT(page(ProcessPage::sites), ContainsSubstring("not started under memlab"));
    state.chosen = 1;
    CHECK_THAT(page(ProcessPage::sites), ContainsSubstring("uses no GPU any more"));
}

TEST_CASE("nn.Modules since a mark are those that grew", "[top]") {
    const NnModules before = {{"a", "Linear", 100, 2}, {"b", "Linear", 50, 1}};
    const NnModules now = {{"a", "Linear", 130, 3}, {"b", "Linear", 50, 1}, {"c", "Conv", 70, 1}};
    const NnModules grown = grown_since(before, now);
    REQUIRE(grown.size() == 2);
    CHECK(grown[0].name == "c");
    CHECK(grown[1].bytes == 30);
    CHECK(grown[1].count == 1);
}

}  // namespace
}  // namespace memlab::tools
