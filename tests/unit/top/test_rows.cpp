// Rows, their order, the filter, and the short texts of figures.
#include "report/text/terminal.hpp"
#include "tests/catch.hpp"
#include "tests/unit/live/live_samples.hpp"
#include "tools/top/rows.hpp"

namespace memlab::tools {
namespace {

std::vector<pid_t> pids_of(const std::vector<Row>& rows) {
    std::vector<pid_t> pids;
    pids.reserve(rows.size());
    for (const Row& row : rows) {
        pids.push_back(row.pid);
    }
    return pids;
}

History small_history() {
    History history;
    MachineSample sample = join(small_machine());
    sample.time_ns = 1;
    history.add(std::move(sample));
    return history;
}

TEST_CASE("rows are sorted by what is asked for", "[top]") {
    const History history = small_history();
    ViewState state;
    CHECK(pids_of(rows_of(history, state, true)) == std::vector<pid_t>{4711, 4712, 4713});
    state.reversed = true;
    CHECK(pids_of(rows_of(history, state, true)) == std::vector<pid_t>{4713, 4712, 4711});
    state.reversed = false;
    state.sort = SortKey::pid;
    CHECK(pids_of(rows_of(history, state, true)) == std::vector<pid_t>{4711, 4712, 4713});
    state.sort = SortKey::allocated;  // what is not known comes last
    CHECK(pids_of(rows_of(history, state, true))[0] == 4711);
    state.sort = SortKey::command;
    CHECK(pids_of(rows_of(history, state, true))[0] == 4713);
}

TEST_CASE("the filter takes parts of command, user, id, state", "[top]") {
    const History history = small_history();
    ViewState state;
    for (const auto& [filter, found] :
         std::vector<std::pair<std::string, std::vector<pid_t>>>{{"SERVE", {4712}},
                                                                 {"alice", {4711, 4712, 4713}},
                                                                 {"4711", {4711}},
                                                                 {"parent gone", {4713}},
                                                                 {"gpu1", {4713}},
                                                                 {"nothing", {}}}) {
        state.filter = filter;
        CHECK(pids_of(rows_of(history, state, true)) == found);
    }
    // What is not shown cannot be found.
    state.filter = "secret";
    CHECK(rows_of(history, state, false).empty());
}

TEST_CASE("a row has what is known, and what is wrong", "[top]") {
    const std::vector<Row> rows = rows_of(small_history(), ViewState(), true);
    CHECK(rows[0].used == 20 * gib);
    CHECK(rows[0].allocated == 12 * gib);
    CHECK(rows[0].trouble.empty());
    CHECK_FALSE(rows[1].allocated);
    CHECK(rows[2].trouble == "parent gone");
    CHECK(rows[2].gpus == "1");
}

TEST_CASE("figures are short", "[top]") {
    CHECK(compact_bytes(0) == "0");
    CHECK(compact_bytes(1023) == "1023");
    CHECK(compact_bytes(1536) == "1.5K");
    CHECK(compact_bytes(12 * gib + gib / 4) == "12.2G");
    CHECK(compact_bytes(141 * gib) == "141G");
    CHECK(compact_bytes(1024 * mib - 1) == "1.0G");
    CHECK(compact_growth(-1536) == "-1.5K");
    CHECK(compact_growth(1536) == "+1.5K");
    CHECK(compact_growth(0) == "0");
    CHECK(compact_growth(std::nullopt).empty());
    CHECK(ranges_of({0, 1, 2, 3, 7}) == "0-3,7");
    CHECK(ranges_of({0, 1}) == "0,1");
    CHECK(ranges_of({}).empty());
}

TEST_CASE("a sparkline shows the shape", "[top]") {
    CHECK(sparkline({0, 7, 14}, 10, true) == "_~#");
    CHECK(sparkline({5, 5, 5}, 10, true) == "~~~");
    CHECK(sparkline({0, 0}, 10, true) == "__");
    CHECK(sparkline({}, 10, true).empty());
    CHECK(report::display_width(sparkline(std::vector<std::uint64_t>(300, 1), 10, false)) == 10);
    // A column has the highest of its values: a peak is never lost.
    std::vector<std::uint64_t> peak(40, 0);
    peak[21] = 9;
    CHECK(sparkline(peak, 4, true) == "__#_");
}

}  // namespace
}  // namespace memlab::tools
