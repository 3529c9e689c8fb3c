// Text output of runs and comparisons of ranks. All strings of a recording pass printable().
#include <algorithm>
#include <cstdio>

#include "report/runs/exact_peaks.hpp"
#include "report/runs/process_rank.hpp"
#include "report/runs/process_stats.hpp"
#include "report/runs/render.hpp"
#include "report/summary/place_text.hpp"
#include "report/summary/summary.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/text.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// "GPU-1a2b3c4d": enough to tell a machine's GPUs apart.
std::string short_uuid(const std::string& uuid) {
    return uuid.substr(0, 12);
}

/// The combined use of a GPU, if several processes used it.
void add_combined_usage(const GpuUsage& gpu, Page& page) {
    if (gpu.members.size() < 2) {
        return;
    }
    constexpr std::size_t width = 13;
    const bool exact = gpu.allocated.exact() && gpu.reserved.exact();
    page.heading(page.clean(gpu.name.empty() ? "GPU" : gpu.name),
                 format_bytes(gpu.total_bytes) + page.separator() +
                     page.clean(short_uuid(gpu.uuid)) + page.separator() +
                     format_plural(gpu.members.size(), "recording"));
    page.line(page.dim("  " + left("", 12) + right("sum of peaks", width + 2) +
                       right(exact ? "at once" : "at once, at most", width + 6) +
                       (exact ? "" : right("at least", width))));
    const auto row = [&](const char* name, const CombinedPeak& peak) {
        page.line("  " + left(name, 12) + right(format_bytes(peak.sum), width + 2) +
                  page.bold(right(format_bytes(peak.at_most), width + 6)) +
                  (exact ? "" : right(format_bytes(peak.at_least), width)));
    };
    row("allocated", gpu.allocated);
    row("reserved", gpu.reserved);
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
        still_running();
        page_.warnings(view_.collection.notes);
        return page_.take();
    }

  private:
    static constexpr std::size_t pid_width = 8;
    static constexpr std::size_t bytes_width = 13;
    static constexpr std::size_t count_width = 10;
    static constexpr std::size_t outcome_width = 10;

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
        std::string title = format_plural(members.size(), "process with CUDA");
        if (members.size() != 1) {
            title = format_count(members.size()) + " processes with CUDA";
        }
        if (hosts.size() > 1) {
            title += " on " + format_plural(hosts.size(), "host");
        }
        if (end > begin) {
            title += " in " + format_duration(end - begin);
        }
        page_.line(page_.bold(title));
        for (const RunFacts& run : view_.collection.runs) {
            std::string text = page_.clean(command_line(run.command));
            page_.line("  " + shorten_end(text, page_.remaining_width(2), page_.style().ascii));
            std::string note =
                format_wall_time(run.start_wall_ns) + page_.separator() + page_.clean(run.host) +
                page_.separator() + "the command " +
                (run.signal.empty() ? "ended with " + std::to_string(run.exit_code.value_or(0))
                                    : "was killed by " + page_.clean(run.signal));
            for (const auto& [name, value] : run.replaced) {
                note += page_.separator() + page_.clean(name) + "=" + page_.clean(value);
            }
            page_.line(
                page_.dim("  " + shorten_end(note, page_.remaining_width(2), page_.style().ascii)));
        }
    }

    void table() {
        const bool with_count = page_.width() >= 92;
        const std::size_t rest =
            3 * bytes_width + (with_count ? count_width : 0) + outcome_width + 2 + pid_width + 2;
        name_width_ = page_.width() > rest + 16 ? page_.width() - rest : 16;
        page_.line("");
        page_.line(page_.dim(right("pid", pid_width) + "  " + left("process", name_width_) +
                             right("allocated", bytes_width) + right("reserved", bytes_width) +
                             (with_count ? right("count", count_width) : "") +
                             right("at the end", bytes_width) + "  outcome"));
        for (const std::size_t root : view_.tree.roots) {
            node(root, "", "");
        }
        if (view_.collection.members.size() > 1) {
            page_.line(page_.dim(std::string(pid_width + 2, ' ') +
                                 "allocated, reserved: each process's own peak"));
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

    void node(std::size_t index, const std::string& lead, const std::string& below) {
        const TreeNode& node = view_.tree.nodes[index];
        const bool ascii = page_.style().ascii;
        const std::size_t width =
            name_width_ > display_width(lead) + 8 ? name_width_ - display_width(lead) : 8;
        const std::string name =
            left(lead + shorten_end(node_name(node), width - 1, ascii), name_width_);
        const std::string pid = right(std::to_string(node.pid), pid_width) + "  ";
        if (node.member == no_member) {
            page_.line(page_.dim(pid + name + right("no CUDA", bytes_width)));
        } else {
            row(node, pid + name);
        }
        for (std::size_t i = 0; i < node.children.size(); ++i) {
            const bool last = i + 1 == node.children.size();
            const std::string branch = ascii ? (last ? "`- " : "|- ") : (last ? "└─ " : "├─ ");
            const std::string under = last ? "   " : (ascii ? "|  " : "│  ");
            this->node(node.children[i], below + branch, below + under);
        }
    }

    void row(const TreeNode& node, const std::string& name) {
        const RunMember& member = view_.collection.members[node.member];
        const ProcessStats figures = process_stats(member.report);
        const std::string outcome = outcome_word(member, view_.tree.became_another(node));
        const bool fine = outcome == "ended" || outcome == "exec" || outcome == "running";
        const std::string allocated = right(format_bytes(figures.allocated_peak), bytes_width);
        page_.line(
            name + (node.member == view_.largest ? page_.bold(allocated) : allocated) +
            right(format_bytes(figures.reserved_peak), bytes_width) +
            (page_.width() >= 92 ? right(format_count(figures.allocations), count_width) : "") +
            right(format_bytes(figures.at_end), bytes_width) + "  " +
            (fine ? outcome : page_.red(page_.clean(outcome))));
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
            page_.line("  pid " + std::to_string(member_process(member).pid) + "  holds " +
                       format_bytes(process_stats(view_.collection.members[member].report).at_end) +
                       "  " + page_.clean(command_line(member_process(member).arguments)));
        }
    }

    const RunView& view_;
    Page page_;
    std::size_t name_width_ = 0;
};

class RanksText {
  public:
    RanksText(const RunView& view, const RankComparison& ranks, const Style& style, std::size_t top,
              const std::string& working_directory)
        : view_(view), ranks_(ranks), page_(style), top_(top), directory_(working_directory) {}

    std::string write() {
        std::string title = format_plural(ranks_.ranks.size(), "rank");
        if (ranks_.world_size) {
            title += " of " + std::to_string(*ranks_.world_size);
        }
        page_.line(page_.bold(title));
        table();
        imbalance();
        for (const GpuUsage& gpu : view_.gpus) {
            add_combined_usage(gpu, page_);
        }
        places();
        std::vector<std::string> notes = ranks_.notes;
        notes.insert(notes.end(), view_.collection.notes.begin(), view_.collection.notes.end());
        page_.warnings(notes);
        return page_.take();
    }

  private:
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
        page_.line(page_.dim(right("rank", 6) + right("pid", 9) + "  " + left("gpu", 13) +
                             right("allocated", 13) + right("reserved", 13) + right("frag", 7) +
                             (wide ? right("count", 11) : "") + right("ooms", 5) + "  outcome" +
                             (wide ? "   host" : "")));
        for (const RankRow& row : ranks_.ranks) {
            const RunMember& member = view_.collection.members[row.member];
            const model::Process& process = member.report.process;
            const std::string gpu = row.gpus.size() == 1 ? page_.clean(short_uuid(row.gpus.front()))
                                                         : format_plural(row.gpus.size(), "GPU");
            const std::string allocated = right(format_bytes(row.allocated_peak), 13);
            const bool largest = row.rank == ranks_.allocated.rank && row.allocated_peak != 0;
            const std::string outcome = outcome_word(member, false);
            page_.line(
                right(std::to_string(row.rank), 6) + right(std::to_string(process.pid), 9) + "  " +
                left(gpu, 13) + (largest ? page_.bold(allocated) : allocated) +
                right(format_bytes(row.reserved_peak), 13) + right(percent(row.fragmentation), 7) +
                (wide ? right(format_count(row.allocations), 11) : "") +
                right(std::to_string(row.ooms), 5) + "  " +
                (outcome == "ended" ? left(outcome, 7) : page_.red(left(page_.clean(outcome), 7))) +
                (wide ? "   " + page_.clean(process.host) : ""));
        }
        const bool helpers = std::any_of(ranks_.ranks.begin(), ranks_.ranks.end(),
                                         [](const RankRow& row) { return row.processes > 1; });
        if (helpers) {
            page_.line(page_.dim(
                "        some ranks have several processes: the largest stands for each"));
        }
    }

    void imbalance() {
        page_.heading("Imbalance", "the largest rank / the mean of all; 1.00 is even");
        const auto row = [&](const char* name, const Imbalance& of) {
            char ratio[16] = "-";
            if (of.ratio) {
                std::snprintf(ratio, sizeof ratio, "%.2f", *of.ratio);
            }
            // The mean is at most the largest, but a rounded double may exceed it, and 64 bits.
            const std::uint64_t mean = of.mean < static_cast<double>(of.largest)
                                           ? static_cast<std::uint64_t>(of.mean)
                                           : of.largest;
            page_.line("  " + left(name, 11) + right(ratio, 6) + "   rank " +
                       std::to_string(of.rank) + " peaks at " +
                       page_.bold(format_bytes(of.largest)) + ", the mean is " +
                       format_bytes(mean));
        };
        row("allocated", ranks_.allocated);
        row("reserved", ranks_.reserved);
    }

    void places() {
        if (ranks_.ranks.size() < 2) {
            return;
        }
        page_.heading("Where ranks differ most", "by the peak of each call stack");
        if (ranks_.places.empty()) {
            page_.line("  nowhere: every stack had the same peak in every rank");
            return;
        }
        page_.line(page_.dim("  " + right("difference", 12) + right("most", 12) + right("rank", 6) +
                             right("least", 12) + right("rank", 6) + "  where"));
        const PlaceTextOptions text{page_.style(), directory_};
        for (std::size_t i = 0; i < ranks_.places.size() && i < top_; ++i) {
            const PlaceSpread& spread = ranks_.places[i];
            const std::string where =
                describe_place(spread.place, spread.kind, {}, page_.remaining_width(52), text);
            page_.line("  " + right(format_bytes(spread.difference()), 12) +
                       right(format_bytes(spread.peaks[spread.max_rank]), 12) +
                       right(std::to_string(ranks_.ranks[spread.max_rank].rank), 6) +
                       right(format_bytes(spread.peaks[spread.min_rank]), 12) +
                       right(std::to_string(ranks_.ranks[spread.min_rank].rank), 6) + "  " + where);
        }
        if (ranks_.places.size() > top_) {
            page_.line(page_.dim("  " + format_plural(ranks_.places.size() - top_, "place") +
                                 " more; --json has them"));
        }
    }

    const RunView& view_;
    const RankComparison& ranks_;
    Page page_;
    std::size_t top_;
    const std::string& directory_;
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
    std::vector<std::string> arguments = process.arguments;
    if (arguments.empty()) {
        arguments.push_back(process.executable);
    }
    arguments.front() = base_name(arguments.front());
    const std::string command = command_line(arguments);
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

std::string render_ranks_text(const RunView& view, const RankComparison& ranks, const Style& style,
                              std::size_t top, const std::string& working_directory) {
    return RanksText(view, ranks, style, top, working_directory).write();
}

}  // namespace memlab::report
