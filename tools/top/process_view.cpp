#include "tools/top/process_view.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <memory>

#include "report/text/plot.hpp"
#include "report/text/units.hpp"
#include "tools/live/holders.hpp"
#include "tools/live/pool_picture.hpp"
#include "tools/top/list_view.hpp"
#include "tools/top/rows.hpp"

namespace memlab::tools {
namespace {

/// What is held below a frame.
struct TreeNode {
    std::uint64_t bytes = 0;
    std::uint64_t count = 0;
    std::vector<std::pair<std::string, std::unique_ptr<TreeNode>>> children;

    TreeNode& child(const std::string& name) {
        for (auto& [known, node] : children) {
            if (known == name) {
                return *node;
            }
        }
        children.emplace_back(name, std::make_unique<TreeNode>());
        return *children.back().second;
    }
};

/// A chain of single callers is one level: what matters is where it branches.
void add_tree(const TreeNode& node, std::size_t depth, const Screen& screen,
              std::vector<Line>& lines) {
    std::vector<std::pair<const std::string*, const TreeNode*>> children;
    for (const auto& [name, child] : node.children) {
        children.emplace_back(&name, child.get());
    }
    std::stable_sort(children.begin(), children.end(), [](const auto& a, const auto& b) {
        return a.second->bytes > b.second->bytes;
    });
    for (const auto& [name, child] : children) {
        Line line;
        line.add(right_in(compact_bytes(child->bytes), 8) + "  ", Tint::bold);
        line.add(std::string(depth * 2, ' ') + report::printable(*name, screen.ascii));
        lines.push_back(std::move(line));
        const bool goes_on_alone =
            child->children.size() == 1 && child->children[0].second->bytes == child->bytes;
        add_tree(*child, depth + (goes_on_alone ? 0 : 1), screen, lines);
    }
}

std::vector<Line> head_lines(const ProcessSample& process, const History& history,
                             const Screen& screen) {
    const ProcessFacts& facts = process.facts;
    std::vector<Line> lines;
    Line title;
    title.add(std::to_string(process.pid()) + "  ", Tint::bold);
    title.add(report::printable(shown_command(process, screen.arguments), screen.ascii),
              Tint::name);
    lines.push_back(std::move(title));
    std::string origin = facts.visible ? "user " + facts.user : "not visible here";
    if (facts.start_wall_ns != 0) {
        origin += "  since " + report::format_wall_time(facts.start_wall_ns);
    }
    if (!facts.container.empty()) {
        origin += "  container " + facts.container;
    }
    if (facts.parent > 0) {
        origin += "  parent " + std::to_string(facts.parent);
    }
    if (process.status && process.status->rank) {
        origin += "  rank " + *process.status->rank;
    }
    lines.emplace_back(report::printable(origin, screen.ascii), Tint::dim);
    for (const GpuUse& use : process.uses) {
        Line line;
        line.add("GPU " + std::to_string(history.latest().gpus.at(use.gpu).gpu.index), Tint::bold);
        line.add("  used " + (use.used ? compact_bytes(*use.used) : std::string("?")));
        if (use.memlab) {
            const auto& gpu = *use.memlab;
            line.add("  allocated " + compact_bytes(gpu.allocated_bytes) + " (max " +
                     compact_bytes(gpu.max_allocated_bytes) + ")  reserved " +
                     compact_bytes(gpu.reserved_bytes) + " (max " +
                     compact_bytes(gpu.max_reserved_bytes) + ")");
            if (gpu.tensor_bytes) {
                line.add("  tensors " + compact_bytes(*gpu.tensor_bytes));
            }
            if (gpu.limit_bytes) {
                line.add("  limit " + compact_bytes(*gpu.limit_bytes), Tint::warning);
            }
        }
        lines.push_back(std::move(line));
    }
    if (process.status) {
        const Growth growth = history.growth(process);
        Line line("pinned " + compact_bytes(process.status->pinned_bytes) + "  managed " +
                  compact_bytes(process.status->managed_bytes));
        if (process.status->step_count) {
            line.add("  steps " + report::format_count(*process.status->step_count));
        }
        if (growth.per_minute) {
            line.add("  growth " + compact_growth(growth.per_minute) + " a minute");
        }
        if (growth.per_step) {
            line.add(", " + compact_growth(growth.per_step) + " a step");
        }
        if (process.status->oom_count != 0) {
            line.add("  " + std::to_string(process.status->oom_count) + " out of memory",
                     Tint::bad);
        }
        lines.push_back(std::move(line));
        const auto& aside = process.status->step_aside;
        if (aside.phase != "off" && aside.phase != "running") {
            lines.emplace_back(report::printable(aside.phase, screen.ascii) + ": " +
                                   compact_bytes(aside.away_bytes) +
                                   " of its memory are away; b brings it back",
                               Tint::warning);
        }
        const auto& hold = process.status->hold_on_oom;
        if (hold.waiting != 0) {
            lines.emplace_back(
                "waits at an out-of-memory" +
                    (hold.requested_bytes ? " of " + compact_bytes(*hold.requested_bytes)
                                          : std::string()) +
                    ": memlab-ctl " + std::to_string(process.pid()) + " release lets it go on",
                Tint::bad);
        }
    } else if (process.memlab) {
        lines.emplace_back(report::printable(process.problem, screen.ascii), Tint::warning);
    }
    for (const GpuUse& use : process.uses) {
        const std::vector<std::string> advice =
            advice_for(process, use, history.latest().pids_of_the_host);
        if (&use == &process.uses.front() && !advice.empty()) {
            lines.emplace_back(
                (screen.ascii ? "> " : "→ ") + report::printable(advice.front(), screen.ascii),
                Tint::dim);
        }
    }
    return lines;
}

Line page_line(const ViewState& state, const Details& details) {
    Line line;
    for (std::size_t i = 0; i < process_pages; ++i) {
        const auto page = static_cast<ProcessPage>(i);
        line.add(" " + std::to_string(i + 1) + " " + name_of(page) + " ",
                 page == state.page ? Tint::chosen : Tint::dim);
    }
    if (state.page != ProcessPage::timeline && state.page != ProcessPage::map) {
        line.add(state.since_mark ? "  since the mark " + details.mark : "  now", Tint::bold);
    }
    return line;
}

std::vector<Line> body_lines(const ProcessSample& process, const History& history,
                             const ViewState& state, const Details& details, const Screen& screen,
                             std::size_t rows) {
    if (state.page == ProcessPage::timeline) {
        return timeline_lines(history.points(process), screen, rows);
    }
    if (state.page == ProcessPage::map) {
        return map_lines(process, history.latest(), details, screen);
    }
    if (!process.memlab) {
        return {
            Line("  Its call sites are not known: it was not started under memlab.", Tint::dim)};
    }
    if (!details.problem.empty()) {
        return {Line("  " + report::printable(details.problem, screen.ascii), Tint::dim)};
    }
    if (state.since_mark && !details.since_mark) {
        return {Line("  There is no mark yet: m makes one.", Tint::dim)};
    }
    const LiveSites& sites = state.since_mark ? *details.since_mark : details.now;
    if (state.page == ProcessPage::sites) {
        return site_lines(sites, process.facts.directory, screen);
    }
    if (state.page == ProcessPage::tree) {
        return tree_lines(sites, screen);
    }
    if (state.since_mark && !details.nn_modules_since_mark) {
        return {
            Line("  They are compared from the first mark on that was made while this page was "
                 "open.",
                 Tint::dim)};
    }
    return nn_module_lines(state.since_mark ? *details.nn_modules_since_mark : details.nn_modules,
                           screen);
}

}  // namespace

std::vector<Line> timeline_lines(const std::vector<HistoryPoint>& points, const Screen& screen,
                                 std::size_t rows) {
    if (points.size() < 2) {
        return {Line("  from the second sample on", Tint::dim)};
    }
    std::vector<report::PlotPoint> curve;
    curve.reserve(points.size());
    const std::uint64_t begin = points.front().time_ns;
    for (const HistoryPoint& point : points) {
        report::PlotPoint at;
        at.time_ns = point.time_ns - begin;
        at.allocated = point.level();
        at.reserved = std::max(point.level(), point.memlab ? point.reserved : point.used);
        curve.push_back(at);
    }
    report::PlotOptions options;
    options.width = static_cast<int>(std::max<std::size_t>(screen.columns, 40));
    options.height = static_cast<int>(std::clamp<std::size_t>(rows > 4 ? rows - 4 : 2, 2, 40));
    options.ascii = screen.ascii;
    std::vector<Line> lines;
    lines.emplace_back(points.back().memlab
                           ? (points.back().tensors ? "tensors (dark), reserved (light)"
                                                    : "allocated (dark), reserved (light)")
                           : "used, by NVML",
                       Tint::dim);
    for (std::string& text :
         report::plot_timeline(curve, points.back().time_ns - begin, {}, options)) {
        lines.emplace_back(std::move(text));
    }
    return lines;
}

std::vector<Line> site_lines(const LiveSites& sites, const std::string& directory,
                             const Screen& screen) {
    std::vector<Line> lines;
    for (const LiveSite& site : one_per_place(sites.sites)) {
        Line line;
        line.add(right_in(compact_bytes(site.bytes), 8), Tint::bold);
        line.add(right_in(report::format_count(site.count), 9) + "  ", Tint::dim);
        line.add(site_text(site, screen.columns - std::min<std::size_t>(screen.columns, 19),
                           screen.ascii, directory));
        lines.push_back(std::move(line));
    }
    if (sites.other_sites != 0) {
        lines.emplace_back(right_in(compact_bytes(sites.other_bytes), 8) + "           in " +
                               report::format_plural(sites.other_sites, "other site"),
                           Tint::dim);
    }
    if (lines.empty()) {
        lines.emplace_back("  nothing is held", Tint::dim);
    }
    return lines;
}

std::vector<Line> tree_lines(const LiveSites& sites, const Screen& screen) {
    TreeNode root;
    for (const LiveSite& site : sites.sites) {
        TreeNode* node = &root;
        std::vector<std::string> path = site.path;
        if (path.empty()) {
            path.emplace_back(site.api.empty() ? "(no stack)" : site.api);
        }
        for (const std::string& name : path) {
            node = &node->child(name);
            node->bytes += site.bytes;
            node->count += site.count;
        }
    }
    std::vector<Line> lines;
    add_tree(root, 0, screen, lines);
    if (lines.empty()) {
        lines.emplace_back("  nothing is held", Tint::dim);
    }
    return lines;
}

std::vector<Line> nn_module_lines(const NnModules& nn_modules, const Screen& screen) {
    std::vector<Line> lines;
    for (const auto& nn_module : nn_modules) {
        Line line;
        line.add(right_in(compact_bytes(nn_module.bytes), 8), Tint::bold);
        line.add(right_in(report::format_count(nn_module.count), 9) + "  ", Tint::dim);
        line.add(report::printable(nn_module_text(nn_module), screen.ascii));
        lines.push_back(std::move(line));
    }
    if (lines.empty()) {
        lines.emplace_back("  no call of an nn.Module holds memory", Tint::dim);
    }
    return lines;
}

namespace {

/// The segments of memlab's pool on a GPU, by the program's index of it.
void add_pool(const model::PoolDocument& pool, std::uint64_t gpu, const Screen& screen,
              std::vector<Line>& lines) {
    for (const model::PoolDocument::Gpu& each : pool.gpus) {
        if (each.gpu != gpu) {
            continue;
        }
        lines.emplace_back("");
        lines.emplace_back(
            "    memlab's pool: " + report::format_plural(each.segment_count, "segment") + ", " +
                compact_bytes(each.reserved_bytes) + " reserved",
            Tint::bold);
        for (std::string& line : pool_picture(each, screen.columns, screen.ascii)) {
            lines.emplace_back(std::move(line));
        }
    }
}

}  // namespace

std::vector<Line> map_lines(const ProcessSample& process, const MachineSample& sample,
                            const Details& details, const Screen& screen) {
    struct Part {
        const char* name;
        const char* glyph;
        const char* letter;
        std::uint64_t bytes;
    };
    std::vector<Line> lines;
    const std::size_t width = screen.columns > 12 ? screen.columns - 8 : 20;
    for (const GpuUse& use : process.uses) {
        const Gpu& gpu = sample.gpus.at(use.gpu).gpu;
        const std::uint64_t held = use.known_bytes();
        std::vector<Part> parts;
        if (use.memlab) {
            const auto& memlab = *use.memlab;
            const std::uint64_t level = memlab.tensor_bytes.value_or(memlab.allocated_bytes);
            const std::uint64_t cached =
                memlab.reserved_bytes - std::min(memlab.reserved_bytes, level);
            parts.push_back({memlab.tensor_bytes ? "tensors" : "allocated", "█", "#", level});
            parts.push_back({"cached", "▓", "=", cached});
            parts.push_back(
                {"context and code", "▒", "-", held - std::min(held, memlab.reserved_bytes)});
        } else {
            parts.push_back({"this process", "█", "#", held});
        }
        const std::uint64_t others = gpu.used - std::min(gpu.used, held);
        parts.push_back({"others", "░", ":", others});
        parts.push_back({"free", "·", ".", gpu.free});
        std::uint64_t whole = 0;
        for (const Part& part : parts) {
            whole += part.bytes;
        }
        // A part's end is rounded, so that the sum has the width.
        std::string bar;
        std::uint64_t before = 0;
        std::size_t drawn = 0;
        for (const Part& part : parts) {
            before += part.bytes;
            const auto end = whole == 0 ? 0
                                        : static_cast<std::size_t>(static_cast<double>(before) /
                                                                   static_cast<double>(whole) *
                                                                   static_cast<double>(width));
            for (; drawn < end; ++drawn) {
                bar += screen.ascii ? part.letter : part.glyph;
            }
        }
        lines.emplace_back(
            "GPU " + std::to_string(gpu.index) + "  " + report::printable(gpu.name, screen.ascii),
            Tint::bold);
        lines.emplace_back("    " + bar);
        for (const Part& part : parts) {
            lines.emplace_back(std::string("    ") + (screen.ascii ? part.letter : part.glyph) +
                               " " + left_in(part.name, 18, screen.ascii) +
                               right_in(compact_bytes(part.bytes), 8));
        }
        if (use.memlab && details.pool) {
            add_pool(*details.pool, use.memlab->gpu, screen, lines);
        }
    }
    return lines;
}

std::vector<Line> process_screen(const History& history, ViewState& state, const Details& details,
                                 const Screen& screen) {
    std::vector<Line> lines;
    const ProcessSample* const process = history.latest().find(state.chosen);
    if (process == nullptr) {
        lines.emplace_back(
            "process " + std::to_string(state.chosen) + " uses no GPU any more: esc goes back",
            Tint::warning);
    } else {
        lines = head_lines(*process, history, screen);
        lines.push_back(page_line(state, details));
        const std::size_t used = lines.size() + 1;
        const std::size_t room = screen.rows > used ? screen.rows - used : 1;
        std::vector<Line> body = body_lines(*process, history, state, details, screen, room);
        state.scroll = std::min(state.scroll, body.size() - std::min(body.size(), room));
        for (std::size_t i = state.scroll; i < std::min(body.size(), state.scroll + room); ++i) {
            lines.push_back(std::move(body[i]));
        }
    }
    for (Line& line : lines) {
        line.cut(screen.columns, screen.ascii);
    }
    lines.resize(screen.rows - 1);
    lines.push_back(foot_line(state, screen));
    return lines;
}

}  // namespace memlab::tools
