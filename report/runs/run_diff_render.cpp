// Text and JSON output of a comparison of two runs; run_documents.hpp has the JSON's members.
// All strings of a recording pass printable() before they are added to the text.
#include <nlohmann/json.hpp>

#include "report/runs/run_diff.hpp"
#include "report/runs/run_documents.hpp"
#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/names.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"
#include "report/views/diff_tables.hpp"

namespace memlab::report {

namespace {

const model::Process& member_process(const RunView& view, std::size_t member) {
    return view.collection.members.at(member).report.process;
}

class RunDiffText {
  public:
    RunDiffText(const RunView& before, const RunView& after, const DiffOptions& options)
        : before_(before),
          after_(after),
          options_(options),
          page_(options.style),
          tables_(options, page_) {}

    std::string write(const RunDiff& diff) {
        side("before", before_);
        side("after", after_);
        page_.heading("Run", pairs_text(diff));
        tables_.totals(diff.totals);
        processes(diff);
        if (diff.pairs != 0) {
            tables_.sites(diff.sites, together(diff));
            tables_.scopes(diff.scopes, "what one entry adds at its peak" + together(diff));
        }
        page_.warnings(diff.notes);
        return page_.take();
    }

  private:
    void side(const char* name, const RunView& view) {
        const std::string count = "  " + processes_text(view.collection.members.size());
        const std::size_t width = page_.remaining_width(10 + display_width(count));
        tables_.side(name, shorten_begin(page_.clean(view.source), width, options_.style.ascii) +
                               page_.dim(count));
    }

    std::string pairs_text(const RunDiff& diff) const {
        std::string text = format_plural(diff.pairs, "pair") +
                           (diff.by_rank ? ", by rank" : ", by program and start");
        if (diff.added != 0) {
            text += page_.separator() + format_count(diff.added) + " new";
        }
        if (diff.gone != 0) {
            text += page_.separator() + format_count(diff.gone) + " gone";
        }
        if (options_.device) {
            text += page_.separator() + "GPU " + std::to_string(*options_.device) + " of each";
        }
        return text;
    }

    static std::string together(const RunDiff& diff) {
        return diff.pairs == 1 ? ", of the pair"
                               : ", of the " + format_count(diff.pairs) + " pairs together";
    }

    void processes(const RunDiff& diff) {
        page_.heading("By process",
                      options_.order == Order::peak ? "allocated peak" : order_name(options_));
        const Table<ChangeRow> table = tables_.changes_of("process", true);
        table.head();
        Change others;
        std::size_t shown = 0;
        std::size_t left_out = 0;
        for (const ProcessDiff& process : diff.processes) {
            if (process.pair.both() && process.change.size() == 0) {
                continue;
            }
            if (shown < options_.top) {
                ++shown;
                row(table, process);
            } else {
                ++left_out;
                model::add_to(others.before, process.change.before);
                model::add_to(others.after, process.change.after);
            }
        }
        if (left_out != 0) {
            table.row({others, format_change_percent(others)},
                      page_.dim("[" + format_plural(left_out, "other") + "]"));
        }
        table.row({diff.change, format_change_percent(diff.change)},
                  page_.dim(diff.unchanged == 0
                                ? "[total]"
                                : "[total; " + format_count(diff.unchanged) + " unchanged]"));
    }

    void row(const Table<ChangeRow>& table, const ProcessDiff& process) {
        const ProcessPair& pair = process.pair;
        const bool has_before = pair.before != no_member;
        const bool has_after = pair.after != no_member;
        const std::string percent = !has_before  ? "new"
                                    : !has_after ? "gone"
                                                 : format_change_percent(process.change);
        table.row({process.change, percent, has_before, has_after},
                  pair_name(pair, table.last_column()));
    }

    /// The command, and the process id if no rank identifies the process: the one that --process
    /// takes, or both ids on wide terminals.
    std::string pair_name(const ProcessPair& pair, std::size_t column) const {
        const bool has = pair.after != no_member;
        const model::Process& process =
            has ? member_process(after_, pair.after) : member_process(before_, pair.before);
        std::string ids;
        if (!pair.stands_for_rank) {
            ids = "  (pid " + std::to_string(process.pid);
            if (pair.both() && page_.width() >= 104) {
                ids += ", was " + std::to_string(member_process(before_, pair.before).pid);
            }
            ids += ")";
        }
        const std::size_t used = column + display_width(ids);
        const std::size_t width = page_.width() > used + 8 ? page_.width() - used : 8;
        std::string title = process_title(process);
        if (display_width(page_.clean(title)) > width) {
            // The folders of a script would hide its name.
            const std::string rank = pair.rank ? "rank " + std::to_string(*pair.rank) + ": " : "";
            const std::string program = program_name(process);
            title = program == base_name(process.executable) ? title : rank + program;
        }
        return shorten_end(page_.clean(title), width, options_.style.ascii) + page_.dim(ids);
    }

    const RunView& before_;
    const RunView& after_;
    const DiffOptions& options_;
    Page page_;
    DiffTables tables_;
};

RunDiffDocument::Side describe(const RunView& view) {
    return {view.source, view.collection.members.size(), view.collection.lacks,
            view.collection.errors};
}

/// None if the run has no such process.
std::optional<RunDiffDocument::Member> describe(const RunView& view, std::size_t member,
                                                const ProcessStats& stats) {
    if (member == no_member) {
        return std::nullopt;
    }
    return RunDiffDocument::Member{view.collection.members[member].file,
                                   view.collection.members[member].lacks,
                                   member_process(view, member), stats};
}

}  // namespace

std::string render_run_diff_text(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options) {
    return RunDiffText(before, after, options).write(diff);
}

std::string render_run_diff_json(const RunView& before, const RunView& after, const RunDiff& diff,
                                 const DiffOptions& options) {
    RunDiffDocument out{.before = describe(before),
                        .after = describe(after),
                        .sort = order_name(options),
                        .filter = options.filter,
                        .device = options.device,
                        .by_rank = diff.by_rank,
                        .totals = diff.totals,
                        .processes = {},
                        .sites = FirstSites(diff.sites, options),
                        .scopes = diff.scopes,
                        .notes = diff.notes};
    for (const ProcessDiff& process : diff.processes) {
        const ProcessPair& pair = process.pair;
        out.processes.push_back(
            {pair.rank, pair.stands_for_rank, describe(before, pair.before, process.before),
             describe(after, pair.after, process.after), process.change.difference()});
    }
    return json_text(JsonObject::of(out)) + "\n";
}

}  // namespace memlab::report
