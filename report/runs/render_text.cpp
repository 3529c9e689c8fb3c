// Text output of runs and comparisons of ranks. All strings of a recording pass printable().
#include <algorithm>
#include <cstdio>

#include "report/device_label.hpp"
#include "report/nn_module_parts.hpp"
#include "report/runs/exact_peaks.hpp"
#include "report/runs/process_matching.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/render.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/shell_word.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

constexpr const char* summed_peaks = "peaks of what was handed out, summed over the GPUs";

/// "GPU-1a2b3c4d": enough to tell a machine's GPUs apart.
std::string short_uuid(const std::string& uuid) {
    return uuid.substr(0, 12);
}

/// The combined use of a GPU, if several processes used it.
void add_combined_usage(const GpuUsage& gpu, Page& page) {
    if (gpu.members.size() < 2) {
        return;
    }
    const bool exact = gpu.allocated.exact() && gpu.reserved.exact();
    page.heading(page.clean(gpu.name.empty() ? "GPU" : gpu.name),
                 format_bytes(gpu.total_bytes) + page.separator() +
                     page.clean(short_uuid(gpu.uuid)) + page.separator() +
                     format_plural(gpu.members.size(), "recording"));
    using Row = std::pair<const char*, CombinedPeak>;
    Table<Row> table(page);
    table.left("", 12, &Row::first)
        .bytes("sum of peaks", 15, [](const Row& row) { return row.second.sum; })
        .bytes(exact ? "at once" : "at once, at most", 19,
               [](const Row& row) { return row.second.at_most; })
        .bold();
    if (!exact) {
        table.bytes("at least", 13, [](const Row& row) { return row.second.at_least; });
    }
    table.head();
    table.row({"allocated", gpu.allocated});
    table.row({"reserved", gpu.reserved});
}

class RunText {
  public:
    RunText(const RunView& view, const Style& style) : view_(view), page_(style) {}

    std::string write() {
        header();
        table();
        for (const GpuUsage& gpu : view_.gpus) {
            add_combined_usage(gpu, page_);
        }
        kinds();
        still_running();
        page_.warnings(all_notes(view_.collection));
        return page_.take();
    }

  private:
    struct Row {
        const TreeNode* node;
        std::string name;  ///< with its place in the tree
        std::optional<ProcessStats> figures;
    };

    const model::Process& member_process(std::size_t member) const {
        return view_.collection.members[member].report.process;
    }

    void header() {
        const auto& members = view_.collection.members;
        std::uint64_t begin = ~std::uint64_t{0};
        std::uint64_t end = 0;
        std::vector<std::string> hosts;
        for (const RunMember& member : members) {
            const model::Process& process = member.report.process;
            begin = std::min(begin, process.start_wall_ns);
            end = std::max(end, process.start_wall_ns + process.duration_ns);
            if (std::find(hosts.begin(), hosts.end(), process.host) == hosts.end()) {
                hosts.push_back(process.host);
            }
        }
        std::string title = format_count(members.size()) +
                            (members.size() == 1 ? " process with CUDA" : " processes with CUDA");
        if (hosts.size() > 1) {
            title += " on " + format_plural(hosts.size(), "host");
        }
        if (end > begin) {
            title += " in " + format_duration(end - begin);
        }
        page_.line(page_.bold(title));
        for (const RunFacts& run : view_.collection.runs) {
            std::string text = page_.clean(command_line(run.command, page_.style().ascii));
            page_.line("  " + shorten_end(text, page_.remaining_width(2), page_.style().ascii));
            std::string note =
                format_wall_time(run.start_wall_ns) + page_.separator() + page_.clean(run.host) +
                page_.separator() + "the command " +
                (run.signal ? "was killed by " + page_.clean(*run.signal)
                            : "ended with " + std::to_string(run.exit_code.value_or(0)));
            for (const auto& [name, value] : run.replaced) {
                note += page_.separator() + page_.clean(name) + "=" + page_.clean(value);
            }
            page_.line(
                page_.dim("  " + shorten_end(note, page_.remaining_width(2), page_.style().ascii)));
        }
    }

    void table() {
        const auto figure = [](std::uint64_t ProcessStats::*which) {
            return [which](const Row& row) {
                return row.figures ? std::optional((*row.figures).*which) : std::nullopt;
            };
        };
        Table<Row> table(page_, 0);
        table.number("pid", 8, [](const Row& row) { return row.node->pid; })
            .left("process", 16, &Row::name)
            .right("allocated", 12,
                   [](const Row& row) {
                       return row.figures ? format_bytes(row.figures->allocated_peak) : "no CUDA";
                   })
            .bold(
                [this](const Row& row) { return row.figures && row.node->member == view_.largest; })
            .bytes("reserved", 12, figure(&ProcessStats::reserved_peak));
        if (page_.width() >= 92) {
            table.count("count", 10, figure(&ProcessStats::allocations));
        }
        table.bytes("at the end", 12, figure(&ProcessStats::at_end))
            .last("outcome", [this](const Row& row) { return outcome(*row.node); });
        constexpr std::size_t outcome_width = 10;
        table.widen(1, outcome_width);
        page_.line("");
        table.head();
        for (const std::size_t root : view_.tree.roots) {
            node(table, root, "", "");
        }
        const auto& members = view_.collection.members;
        if (std::any_of(members.begin(), members.end(), [](const RunMember& member) {
                return process_stats(member.report).gpus > 1;
            })) {
            page_.line(page_.dim("          " + std::string(summed_peaks) + " of a process"));
        } else if (members.size() > 1) {
            page_.line(page_.dim(
                "          allocated, reserved: each process's own peak of what CUDA handed out"));
        }
    }

    std::string node_name(const TreeNode& node) const {
        if (node.member == no_member) {
            const std::string command = page_.clean(node.command);
            return command.empty() ? "(not recorded)" : without_folder(command);
        }
        return (node.by_exec ? "exec " : "") +
               page_.clean(process_title(member_process(node.member)));
    }

    /// "/usr/bin/python3 train.py" as "python3 train.py".
    static std::string without_folder(const std::string& command) {
        const std::size_t blank = command.find(' ');
        const std::size_t slash = command.rfind('/', blank);
        return slash == std::string::npos ? command : command.substr(slash + 1);
    }

    void node(const Table<Row>& table, std::size_t index, const std::string& lead,
              const std::string& below) {
        const TreeNode& node = view_.tree.nodes[index];
        const bool ascii = page_.style().ascii;
        const std::size_t column = table.width_of(1);
        const std::size_t width =
            column > display_width(lead) + 8 ? column - display_width(lead) : 8;
        Row row{&node, lead + shorten_end(node_name(node), width - 1, ascii), std::nullopt};
        if (node.member == no_member) {
            page_.line(page_.dim(table.line(row)));
        } else {
            row.figures = process_stats(view_.collection.members[node.member].report);
            table.row(row);
        }
        for (std::size_t i = 0; i < node.children.size(); ++i) {
            const bool last = i + 1 == node.children.size();
            const std::string branch = ascii ? (last ? "`- " : "|- ") : (last ? "└─ " : "├─ ");
            const std::string under = last ? "   " : (ascii ? "|  " : "│  ");
            this->node(table, node.children[i], below + branch, below + under);
        }
    }

    std::string outcome(const TreeNode& node) const {
        if (node.member == no_member) {
            return "";
        }
        const std::string word =
            outcome_word(view_.collection.members[node.member], view_.tree.became_another(node));
        const bool fine = word == "ended" || word == "exec" || word == "running";
        return fine ? word : page_.red(page_.clean(word));
    }

    /// Memory that no curve of a GPU has, where it is worth telling.
    void kinds() {
        std::vector<std::pair<std::uint64_t, ProcessStats>> rows;  // process id
        for (const RunMember& member : view_.collection.members) {
            const ProcessStats stats = process_stats(member.report);
            if (std::max(stats.managed_peak, stats.pinned_peak) != 0 &&
                std::max(stats.managed_peak, stats.pinned_peak) >= stats.allocated_peak / 100) {
                rows.emplace_back(member.report.process.pid, stats);
            }
        }
        if (rows.empty()) {
            return;
        }
        using Row = std::pair<std::uint64_t, ProcessStats>;
        page_.heading("Managed and pinned memory", "each process's own peaks, in no figure above");
        Table<Row> table(page_, 0);
        table.number("pid", 8, &Row::first)
            .bytes("managed", 14, [](const Row& row) { return row.second.managed_peak; })
            .bytes("pinned", 14, [](const Row& row) { return row.second.pinned_peak; });
        table.head();
        table.rows(rows, rows.size());
    }

    void still_running() {
        std::vector<std::size_t> running;
        for (std::size_t i = 0; i < view_.collection.members.size(); ++i) {
            if (view_.collection.members[i].running) {
                running.push_back(i);
            }
        }
        if (running.empty()) {
            return;
        }
        page_.heading("Still running when the command had ended");
        for (const std::size_t member : running) {
            page_.line(
                "  pid " + std::to_string(member_process(member).pid) + "  holds " +
                format_bytes(process_stats(view_.collection.members[member].report).at_end) + "  " +
                page_.clean(command_line(member_process(member).arguments, page_.style().ascii)));
        }
    }

    const RunView& view_;
    Page page_;
};

class RanksText {
  public:
    RanksText(const RunView& view, const RankComparison& ranks, const RanksTextOptions& options)
        : view_(view), ranks_(ranks), options_(options), page_(options.style) {}

    std::string write() {
        std::string title = format_plural(ranks_.ranks.size(), "rank");
        if (ranks_.world_size) {
            title += " of " + std::to_string(*ranks_.world_size);
        }
        page_.line(page_.bold(title) + page_.dim(level_text()));
        table();
        imbalance();
        for (const GpuUsage& gpu : view_.gpus) {
            add_combined_usage(gpu, page_);
        }
        if (options_.by_nn_module) {
            nn_modules();
        } else {
            places();
        }
        page_.warnings(notes_of_ranks(view_.collection, ranks_));
        return page_.take();
    }

  private:
    /// What the figures are of, where both levels are here.
    std::string level_text() const {
        for (const RankRow& row : ranks_.ranks) {
            for (const model::Device& device :
                 view_.collection.members[row.member].report.devices) {
                if (!device.is_gpu()) {
                    return ranks_.level == Level::driver
                               ? "  what CUDA handed out"
                               : "  what " + page_.clean(cache_name(device)) +
                                     " handed out; --level driver: what CUDA did";
                }
            }
        }
        return "";
    }

    static std::string percent(const std::optional<double>& ratio) {
        char text[16] = "-";
        if (ratio) {
            std::snprintf(text, sizeof text, "%.1f%%", *ratio * 100);
        }
        return text;
    }

    void table() {
        page_.line("");
        const bool wide = page_.width() >= 96;
        const auto member = [this](const RankRow& row) -> const RunMember& {
            return view_.collection.members[row.member];
        };
        const auto any = [this](std::uint64_t RankRow::*figure) {
            return std::any_of(ranks_.ranks.begin(), ranks_.ranks.end(),
                               [figure](const RankRow& row) { return row.*figure != 0; });
        };
        const bool managed = any(&RankRow::managed_peak);
        Table<RankRow> table(page_, 0);
        table.number("rank", 6, &RankRow::rank);
        if (!managed || page_.width() >= 90) {
            table.number("pid", 9,
                         [&](const RankRow& row) { return member(row).report.process.pid; });
        }
        table
            .left("gpu", 13,
                  [this](const RankRow& row) {
                      return row.gpus.size() == 1 ? page_.clean(short_uuid(row.gpus.front()))
                                                  : format_plural(row.gpus.size(), "GPU");
                  })
            .bytes("allocated", 13, &RankRow::allocated_peak)
            .bold([this](const RankRow& row) {
                return row.rank == ranks_.allocated.rank && row.allocated_peak != 0;
            })
            .bytes("reserved", 13, &RankRow::reserved_peak);
        if (managed) {
            table.bytes("managed", 12, &RankRow::managed_peak);
        }
        constexpr std::size_t with_pinned = 110;
        if (page_.width() >= with_pinned && any(&RankRow::pinned_peak)) {
            table.bytes("pinned", 13, &RankRow::pinned_peak);
        }
        table.right("frag", 7, [](const RankRow& row) { return percent(row.fragmentation); });
        if (wide) {
            table.count("count", 11, &RankRow::allocations);
        }
        table.number("ooms", 5, &RankRow::ooms)
            .left("outcome", wide ? 8 : Column::rest, [&](const RankRow& row) {
                const std::string outcome = outcome_word(member(row), false);
                return outcome == "ended" ? outcome : page_.red(page_.clean(outcome));
            });
        if (wide) {
            table.last("host", [&](const RankRow& row) {
                return page_.clean(member(row).report.process.host);
            });
        }
        table.head();
        table.rows(ranks_.ranks, ranks_.ranks.size());
        if (std::any_of(ranks_.ranks.begin(), ranks_.ranks.end(),
                        [](const RankRow& row) { return row.gpus.size() > 1; })) {
            page_.line(page_.dim("        " + std::string(summed_peaks) + " of a rank"));
        }
        if (std::any_of(ranks_.ranks.begin(), ranks_.ranks.end(),
                        [](const RankRow& row) { return row.processes > 1; })) {
            page_.line(page_.dim(
                "        some ranks have several processes: the largest stands for each"));
        }
    }

    void imbalance() {
        page_.heading("Imbalance", "the largest rank / the mean of all; 1.00 is even");
        using Row = std::pair<std::string, std::string>;
        Table<Row> table(page_);
        table.left("", 11, &Row::first).right("", 6, &Row::second).last("");
        const auto row = [&](const char* name, const Imbalance& of) {
            char ratio[16] = "-";
            if (of.ratio) {
                std::snprintf(ratio, sizeof ratio, "%.2f", *of.ratio);
            }
            table.row({name, ratio}, " " + imbalance_text(of));
        };
        row("allocated", ranks_.allocated);
        row("reserved", ranks_.reserved);
    }

    void places() {
        if (ranks_.ranks.size() < 2) {
            return;
        }
        page_.heading("Where ranks differ most", "by the peaks of each place's call stacks");
        if (ranks_.places.empty()) {
            page_.line("  nowhere: every place had the same peaks in every rank");
            return;
        }
        using Spread = PlaceSpread;
        Table<Spread> table(page_);
        table.bytes("difference", &Spread::difference)
            .bytes("most", [](const Spread& each) { return each.peaks[each.max_rank]; })
            .number("rank", 6, [&](const Spread& each) { return ranks_.ranks[each.max_rank].rank; })
            .bytes("least", [](const Spread& each) { return each.peaks[each.min_rank]; })
            .number("rank", 6, [&](const Spread& each) { return ranks_.ranks[each.min_rank].rank; })
            .last("where", [&](const Spread& each) {
                return describe_place(each.place, each.kind, {}, table.last_width(),
                                      {page_.style(), options_.working_directory});
            });
        table.head();
        if (const std::size_t more = table.rows(ranks_.places, options_.top)) {
            page_.line(page_.dim("  " + format_plural(more, "place") + " more; --json has them"));
        }
    }

    /// A column for each rank where the page is wide enough, else those of the most and the least.
    void nn_modules() {
        page_.heading("By nn.Module", "what each rank held at its allocated peak");
        if (ranks_.nn_modules.empty()) {
            page_.paragraph("  ", no_nn_modules);
            return;
        }
        using Spread = NnModuleSpread;
        constexpr std::size_t name_width = 20;
        constexpr std::size_t figure_width = 14;
        Table<Spread> table(page_);
        table.bytes("difference", &Spread::difference);
        if (page_.remaining_width(figure_width * (ranks_.ranks.size() + 1)) > name_width) {
            for (std::size_t i = 0; i < ranks_.ranks.size(); ++i) {
                table.bytes("rank " + std::to_string(ranks_.ranks[i].rank),
                            [i](const Spread& each) { return each.bytes[i]; });
            }
        } else {
            const auto rank = [this](std::size_t index) { return ranks_.ranks[index].rank; };
            table.bytes("most", [](const Spread& each) { return each.bytes[each.max_rank]; })
                .number("rank", 6, [rank](const Spread& each) { return rank(each.max_rank); })
                .bytes("least", [](const Spread& each) { return each.bytes[each.min_rank]; })
                .number("rank", 6, [rank](const Spread& each) { return rank(each.min_rank); });
        }
        table.last("nn.Module", [&](const Spread& each) {
            return shorten_begin(page_.clean(each.name), table.last_width(), page_.style().ascii);
        });
        table.head();
        if (const std::size_t more = table.rows(ranks_.nn_modules, options_.top)) {
            page_.line(
                page_.dim("  " + format_plural(more, "nn.Module") + " more; --json has them"));
        }
    }

    const RunView& view_;
    const RankComparison& ranks_;
    const RanksTextOptions& options_;
    Page page_;
};

}  // namespace

RunView view_run(const std::string& source, RunCollection collection) {
    RunView view;
    view.source = source;
    view.collection = std::move(collection);
    view.tree = build_tree(view.collection);
    view.gpus = combined_gpu_usage(view.collection);
    find_exact_peaks(view.collection, view.gpus);
    std::uint64_t max_peak = 0;
    for (std::size_t i = 0; i < view.collection.members.size(); ++i) {
        const std::uint64_t peak = process_stats(view.collection.members[i].report).allocated_peak;
        if (view.largest == no_member || peak > max_peak) {
            view.largest = i;
            max_peak = peak;
        }
    }
    return view;
}

std::string process_title(const model::Process& process) {
    const std::string command = command_line(program_command(process));
    const std::optional<std::uint64_t> rank = find_rank(process);
    return rank ? "rank " + std::to_string(*rank) + ": " + command : command;
}

std::string outcome_word(const RunMember& member, bool became) {
    const model::Process& process = member.report.process;
    if (member.running || process.recording || process.ended == "running") {
        return "running";
    }
    if (!process.signal.empty()) {
        return process.signal;
    }
    if (became) {
        return "exec";
    }
    if (process.exit_code && *process.exit_code != 0) {
        return "exit " + std::to_string(*process.exit_code);
    }
    return process.ended == "cut off" && !process.exit_code ? "cut off" : "ended";
}

std::string render_run_text(const RunView& view, const Style& style) {
    return RunText(view, style).write();
}

std::string render_ranks_text(const RunView& view, const RankComparison& ranks,
                              const RanksTextOptions& options) {
    return RanksText(view, ranks, options).write();
}

}  // namespace memlab::report
