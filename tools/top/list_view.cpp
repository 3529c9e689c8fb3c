#include "tools/top/list_view.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "report/text/units.hpp"
#include "tools/live/holders.hpp"

namespace memlab::tools {
namespace {

constexpr std::size_t least_command = 28;

/// A column of the processes. Those with a higher `spare` go first where the screen is narrow.
struct RowColumn {
    const char* heading;
    std::size_t width;
    int spare;  ///< 0: it stays
    std::optional<SortKey> key;
    std::function<std::string(const Row&)> cell;
    bool left = false;
};

std::string bytes_or(const std::optional<std::uint64_t>& bytes, const char* none) {
    return bytes ? compact_bytes(*bytes) : none;
}

/// A column in which nobody has anything is not shown.
template <typename Has>
bool any_has(const std::vector<Row>& rows, Has has) {
    return std::any_of(rows.begin(), rows.end(), has);
}

std::vector<RowColumn> all_columns(const std::vector<Row>& rows, bool ascii) {
    const char* const unknown = ascii ? "-" : "–";
    std::vector<RowColumn> columns;
    columns.push_back(
        {"PID", 7, 0, SortKey::pid, [](const Row& row) { return std::to_string(row.pid); }});
    columns.push_back({"USER", 8, 4, std::nullopt, [](const Row& row) { return row.user; }, true});
    columns.push_back({"GPU", 4, 0, std::nullopt, [](const Row& row) { return row.gpus; }});
    if (any_has(rows, [](const Row& row) { return !row.rank.empty(); })) {
        columns.push_back({"RANK", 4, 3, std::nullopt, [](const Row& row) { return row.rank; }});
    }
    columns.push_back({"USED", 6, 0, SortKey::used,
                       [unknown](const Row& row) { return bytes_or(row.used, unknown); }});
    columns.push_back({"ALLOC", 6, 0, SortKey::allocated,
                       [unknown](const Row& row) { return bytes_or(row.allocated, unknown); }});
    columns.push_back({"RESERV", 6, 0, SortKey::reserved,
                       [unknown](const Row& row) { return bytes_or(row.reserved, unknown); }});
    if (any_has(rows, [](const Row& row) { return row.tensors.has_value(); })) {
        columns.push_back({"TENSOR", 6, 1, SortKey::tensors,
                           [unknown](const Row& row) { return bytes_or(row.tensors, unknown); }});
    }
    columns.push_back({"/MIN", 7, 0, SortKey::per_minute, [unknown](const Row& row) {
                           const std::string text = compact_growth(row.growth.per_minute);
                           return text.empty() ? unknown : text;
                       }});
    if (any_has(rows, [](const Row& row) { return row.growth.per_step.has_value(); })) {
        columns.push_back({"/STEP", 7, 2, SortKey::per_step, [unknown](const Row& row) {
                               const std::string text = compact_growth(row.growth.per_step);
                               return text.empty() ? unknown : text;
                           }});
    }
    columns.push_back({"CURVE", 10, 5, std::nullopt,
                       [ascii](const Row& row) { return sparkline(row.curve, 10, ascii); }, true});
    return columns;
}

std::vector<RowColumn> fitting_columns(const std::vector<Row>& rows, const Screen& screen) {
    std::vector<RowColumn> columns = all_columns(rows, screen.ascii);
    const auto width = [&columns] {
        std::size_t sum = 0;
        for (const RowColumn& column : columns) {
            sum += column.width + 1;
        }
        return sum;
    };
    while (width() + least_command > screen.columns) {
        const auto last =
            std::max_element(columns.begin(), columns.end(),
                             [](const auto& a, const auto& b) { return a.spare < b.spare; });
        if (last->spare == 0) {
            break;
        }
        columns.erase(last);
    }
    return columns;
}

Tint tint_of(const Row& row) {
    return row.holds              ? Tint::bad
           : !row.trouble.empty() ? Tint::warning
           : row.memlab           ? Tint::plain
                                  : Tint::dim;
}

Line row_line(const Row& row, const std::vector<RowColumn>& columns, bool chosen,
              const Screen& screen) {
    std::string text;
    for (const RowColumn& column : columns) {
        const std::string cell = report::printable(column.cell(row), screen.ascii);
        text += (column.left ? left_in(cell, column.width, screen.ascii)
                             : right_in(cell, column.width)) +
                " ";
    }
    const Tint tint = chosen ? Tint::chosen : tint_of(row);
    Line line(text, tint);
    if (!row.trouble.empty()) {
        line.add("[" + row.trouble + "] ", chosen ? Tint::chosen : Tint::warning);
    }
    line.add(report::printable(row.shown, screen.ascii), tint);
    line.cut(screen.columns, screen.ascii);
    if (chosen && line.width() < screen.columns) {
        line.add(std::string(screen.columns - line.width(), ' '), Tint::chosen);
    }
    return line;
}

std::string bar(std::uint64_t part, std::uint64_t whole, std::size_t width, bool ascii) {
    const double share = whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
    const auto filled =
        std::min(width, static_cast<std::size_t>(std::lround(share * static_cast<double>(width))));
    std::string text;
    for (std::size_t i = 0; i < width; ++i) {
        text += ascii ? (i < filled ? "|" : ".") : (i < filled ? "█" : "·");
    }
    return text;
}

/// "train.py:42  train", with its bytes, of each; how many are left.
void add_sites(const LiveSites& sites, const std::string& directory, const Screen& screen,
               std::size_t most, std::vector<Line>& lines) {
    std::vector<LiveSite> places = one_per_place(sites.sites);
    places.resize(std::min(most, places.size()));
    for (const LiveSite& site : places) {
        Line line;
        line.add("  " + right_in(compact_bytes(site.bytes), 7) + "  ", Tint::bold);
        line.add(site_text(site, screen.columns - std::min<std::size_t>(screen.columns, 12),
                           screen.ascii, directory));
        lines.push_back(std::move(line));
    }
}

void add_nn_modules(const NnModules& nn_modules, const Screen& screen, std::size_t most,
                    std::vector<Line>& lines) {
    const std::size_t count = std::min(most, nn_modules.size());
    for (std::size_t i = 0; i < count; ++i) {
        Line line;
        line.add("  " + right_in(compact_bytes(nn_modules[i].bytes), 7) + "  ", Tint::bold);
        line.add(report::printable(nn_module_text(nn_modules[i]), screen.ascii), Tint::name);
        lines.push_back(std::move(line));
    }
}

}  // namespace

Line title_line(const History& history, const ViewState& state, const Screen& screen) {
    const MachineSample& sample = history.latest();
    const std::string time = report::format_wall_time(sample.wall_ns);
    const auto under = std::count_if(sample.processes.begin(), sample.processes.end(),
                                     [](const ProcessSample& process) { return process.memlab; });
    Line line;
    line.add("memlab-top", Tint::bold);
    if (state.paused) {
        line.add("  PAUSED", Tint::warning);
    }
    line.add("  " + report::printable(sample.host, screen.ascii) + "  " +
             time.substr(std::min<std::size_t>(time.size(), 11)) + "  ");
    line.add(std::to_string(sample.processes.size()) +
             (sample.processes.size() == 1 ? " process, " : " processes, ") +
             std::to_string(under) + " under memlab");
    line.add(std::string("  by ") + name_of(state.sort) + (state.reversed ? ", reversed" : ""),
             Tint::dim);
    if (!state.filter.empty()) {
        line.add("  only: " + report::printable(state.filter, screen.ascii), Tint::warning);
    }
    line.cut(screen.columns, screen.ascii);
    return line;
}

std::vector<Line> gpu_lines(const MachineSample& sample, const Screen& screen) {
    std::vector<Line> lines;
    for (const GpuSample& gpu : sample.gpus) {
        Line line;
        line.add("GPU " + std::to_string(gpu.gpu.index) + " ", Tint::bold);
        const std::string figures =
            gpu.gpu.total == 0 ? "not known"
                               : compact_bytes(gpu.gpu.used) + "/" + compact_bytes(gpu.gpu.total) +
                                     "  free " + compact_bytes(gpu.gpu.free);
        if (gpu.gpu.total != 0) {
            const bool full = gpu.gpu.used > gpu.gpu.total / 20 * 19;
            const bool high = gpu.gpu.used > gpu.gpu.total / 20 * 16;
            line.add(
                bar(gpu.gpu.used, gpu.gpu.total, screen.columns >= 100 ? 30 : 18, screen.ascii),
                full   ? Tint::bad
                : high ? Tint::warning
                       : Tint::good);
        }
        line.add(" " + right_in(figures, 24));
        if (gpu.unaccounted && *gpu.unaccounted != 0) {
            line.add("  driver " + compact_bytes(*gpu.unaccounted), Tint::dim);
        }
        line.add("  " + report::printable(gpu.gpu.name, screen.ascii), Tint::dim);
        line.cut(screen.columns, screen.ascii);
        lines.push_back(std::move(line));
    }
    for (const std::string& unknown : unknown_in(sample)) {
        Line line((screen.ascii ? "! " : "⚠ ") + report::printable(unknown, screen.ascii),
                  Tint::warning);
        line.cut(screen.columns, screen.ascii);
        lines.push_back(std::move(line));
    }
    return lines;
}

std::vector<Line> table_lines(const std::vector<Row>& rows, const ViewState& state,
                              const Screen& screen) {
    const std::vector<RowColumn> columns = fitting_columns(rows, screen);
    std::vector<Line> lines(1);
    for (const RowColumn& column : columns) {
        lines[0].add((column.left ? left_in(column.heading, column.width, screen.ascii)
                                  : right_in(column.heading, column.width)) +
                         " ",
                     column.key == state.sort ? Tint::bold : Tint::dim);
    }
    lines[0].add("COMMAND", state.sort == SortKey::command ? Tint::bold : Tint::dim);
    lines[0].cut(screen.columns, screen.ascii);
    for (const Row& row : rows) {
        lines.push_back(row_line(row, columns, row.pid == state.chosen, screen));
    }
    return lines;
}

std::vector<Line> holder_lines(const Details& details, const ViewState& state,
                               const std::string& directory, const Screen& screen,
                               std::size_t most) {
    std::vector<Line> lines;
    if (!details.problem.empty()) {
        lines.emplace_back("  " + report::printable(details.problem, screen.ascii), Tint::dim);
    } else if (state.since_mark && !details.since_mark) {
        lines.emplace_back("  there is no mark yet: m makes one", Tint::dim);
    } else {
        const LiveSites& sites = state.since_mark ? *details.since_mark : details.now;
        const NnModules& nn_modules = state.since_mark && details.nn_modules_since_mark
                                          ? *details.nn_modules_since_mark
                                      : state.since_mark ? NnModules()
                                                         : details.nn_modules;
        const std::size_t of_nn_modules = std::min(nn_modules.size(), most / 3);
        add_sites(sites, directory, screen, most - of_nn_modules, lines);
        add_nn_modules(nn_modules, screen, of_nn_modules, lines);
        if (lines.empty()) {
            lines.emplace_back("  nothing is held", Tint::dim);
        }
    }
    for (Line& line : lines) {
        line.cut(screen.columns, screen.ascii);
    }
    return lines;
}

Line foot_line(const ViewState& state, const Screen& screen) {
    Line line;
    if (state.prompt == ViewState::Prompt::filter) {
        line.add("filter: ", Tint::bold).add(report::printable(state.typed, screen.ascii) + "_");
    } else if (state.prompt == ViewState::Prompt::mark) {
        line.add("name of the mark in " + std::to_string(state.chosen) + ": ", Tint::bold)
            .add(report::printable(state.typed, screen.ascii) + "_");
    } else if (!state.message.empty()) {
        line.add(report::printable(state.message, screen.ascii), Tint::warning);
    } else {
        line.add(state.looks_into
                     ? "esc back  1-5 page  d since mark  m mark  n snapshot  e cache  "
                       "y yield  ?"
                     : "q quit  enter look  s sort  / filter  p pause  m mark  "
                       "n snapshot  e cache  ?",
                 Tint::dim);
    }
    line.cut(screen.columns, screen.ascii);
    return line;
}

std::vector<Line> list_screen(const History& history, const std::vector<Row>& rows,
                              ViewState& state, const DetailsOf& details, const Screen& screen) {
    const auto is_chosen = [&state](const Row& row) { return row.pid == state.chosen; };
    if (std::none_of(rows.begin(), rows.end(), is_chosen)) {
        state.chosen = rows.empty() ? 0 : rows[0].pid;
    }
    std::vector<Line> lines{title_line(history, state, screen)};
    // On a low screen the processes come first.
    if (screen.rows >= 8) {
        for (Line& line : gpu_lines(history.latest(), screen)) {
            if (lines.size() < std::max<std::size_t>(screen.rows / 3, 2)) {
                lines.push_back(std::move(line));
            }
        }
        lines.emplace_back();
    }
    const std::vector<Line> table = table_lines(rows, state, screen);
    const auto found = details.find(state.chosen);
    const bool has_panel = screen.rows >= 16 && found != details.end();
    const std::size_t panel = has_panel ? std::min<std::size_t>(screen.rows / 3, 10) : 0;
    const std::size_t used = lines.size() + panel + 2;  // with the heading and the foot
    const std::size_t room = screen.rows > used ? screen.rows - used : 1;
    const auto at =
        static_cast<std::size_t>(std::find_if(rows.begin(), rows.end(), is_chosen) - rows.begin());
    const std::size_t first =
        rows.size() <= room || at < room / 2 ? 0 : std::min(at - room / 2, rows.size() - room);
    lines.push_back(table[0]);
    for (std::size_t i = first; i < std::min(rows.size(), first + room); ++i) {
        lines.push_back(table[i + 1]);
    }
    if (rows.empty()) {
        lines.emplace_back(
            state.filter.empty() ? "  no process uses a GPU" : "  no process passes the filter",
            Tint::dim);
    }
    const std::size_t body = screen.rows - std::min(screen.rows, panel + 1);
    lines.resize(std::min(lines.size(), std::max<std::size_t>(body, 1)));
    if (has_panel) {
        lines.resize(body);
        const ProcessSample* const process = history.latest().find(state.chosen);
        const std::string what =
            state.since_mark ? ", since the mark " + found->second.mark : std::string(", now");
        lines.emplace_back("held by process " + std::to_string(state.chosen) +
                               report::printable(what, screen.ascii),
                           Tint::bold);
        lines.back().cut(screen.columns, screen.ascii);
        for (Line& line :
             holder_lines(found->second, state,
                          process == nullptr ? std::string() : process->facts.directory, screen,
                          panel - 1)) {
            lines.push_back(std::move(line));
        }
    }
    for (Line& line : lines) {
        line.cut(screen.columns, screen.ascii);
    }
    lines.resize(screen.rows - 1);
    lines.push_back(foot_line(state, screen));
    return lines;
}

std::vector<Line> help_screen(const Screen& screen) {
    static constexpr const char* texts[] = {
        "up down pgup pgdn   choose a process; on a page of it: scroll",
        "enter               look into the process; esc: back",
        "1 2 3 4 5, tab      timeline, sites, tree, nn-modules, map of it",
        "d                   sites and nn-modules: now, or since its latest mark",
        "s, r                sort by the next column; reverse",
        "/                   filter by a part of command, user, process id or container",
        "p, space            pause the screen; samples go on",
        "m                   add a mark to its recording",
        "n                   write a snapshot of its report",
        "e                   give the cached memory of its pool back",
        "y, b                its memory leaves the GPU (yield); brings it back (restore)",
        "q                   quit",
        "",
        "USED is NVML's figure of the whole process; ALLOC, RESERV and TENSOR are",
        "memlab's. /MIN and /STEP: by how much the lowest level grows, over the last",
        "two minutes. K, M, G: KiB, MiB, GiB.",
    };
    std::vector<Line> lines{Line("memlab-top: keys", Tint::bold), Line()};
    for (const char* text : texts) {
        lines.emplace_back(std::string("  ") + text);
        lines.back().cut(screen.columns, screen.ascii);
    }
    lines.resize(screen.rows - 1);
    lines.emplace_back("any key: back", Tint::dim);
    return lines;
}

std::vector<Line> once_lines(const History& history, const DetailsOf& details,
                             const ViewState& state, const Screen& screen) {
    const std::vector<Row> rows = rows_of(history, state, screen.arguments);
    std::vector<Line> lines{title_line(history, state, screen)};
    for (Line& line : gpu_lines(history.latest(), screen)) {
        lines.push_back(std::move(line));
    }
    lines.emplace_back();
    for (Line& line : table_lines(rows, state, screen)) {
        lines.push_back(std::move(line));
    }
    if (rows.empty()) {
        lines.emplace_back("  no process uses a GPU", Tint::dim);
    }
    for (const Row& row : rows) {
        const auto found = details.find(row.pid);
        if (found == details.end()) {
            continue;
        }
        const ProcessSample* const process = history.latest().find(row.pid);
        lines.emplace_back();
        lines.emplace_back("held by process " + std::to_string(row.pid), Tint::bold);
        for (Line& line : holder_lines(found->second, state, process->facts.directory, screen, 8)) {
            lines.push_back(std::move(line));
        }
    }
    return lines;
}

}  // namespace memlab::tools
