#include "report/runs/trend.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

#include "report/runs/process_matching.hpp"
#include "report/summary/json_object.hpp"
#include "report/summary/json_values.hpp"
#include "report/text/page.hpp"
#include "report/text/table.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

/// A run with the figures of both levels: which is shown is known behind all runs.
struct RunFigures {
    TrendRow row;
    std::uint64_t recorded_ns = 0;
    ProcessStats driver;
    ProcessStats framework;
};

RunFigures read_run(const std::string& source, bool* inside, FileErrors* errors) {
    RunFigures out;
    out.row.source = source;
    const RunCollection run = collect_run({source}, Keep::totals);
    errors->insert(errors->end(), run.errors.begin(), run.errors.end());
    const RunMember* largest = nullptr;
    for (const RunMember& member : run.members) {
        const ProcessStats driver = process_stats(member.report);
        *inside = *inside && (driver.reserved_peak == 0 || is_seen_inside(member.report));
        if (largest == nullptr || driver.allocated_peak > out.driver.allocated_peak) {
            largest = &member;
            out.driver = driver;
        }
    }
    if (largest != nullptr) {
        const model::Process& process = largest->report.process;
        out.framework = process_stats(largest->report, std::nullopt, Level::framework);
        out.recorded_ns = std::max(process.recorded_ns, process.duration_ns);
        out.row.start_wall_ns = process.start_wall_ns;
        out.row.host = process.host;
        out.row.processes = run.members.size();
        out.row.pid = process.pid;
        out.row.program = program_name(process);
        out.row.ooms = largest->report.oom_count;
        out.row.lacks = largest->lacks;
    }
    return out;
}

/// Adds a run. One that is there already (its log beside its report, a snapshot, another path to
/// the same file) stays once: by the recording that reaches furthest, of equals by the first.
void add_run(std::vector<RunFigures>* runs, RunFigures run) {
    const auto key = [](const RunFigures& each) {
        return std::tie(each.row.host, each.row.pid, each.row.start_wall_ns);
    };
    const auto there = std::find_if(runs->begin(), runs->end(), [&](const RunFigures& each) {
        return run.row.start_wall_ns != 0 && key(each) == key(run);
    });
    if (there == runs->end()) {
        runs->push_back(std::move(run));
    } else if (run.recorded_ns > there->recorded_ns) {
        *there = std::move(run);
    }
}

}  // namespace

Trend make_trend(const std::vector<std::string>& sources, const std::optional<Level>& level) {
    Trend trend;
    bool inside = true;
    std::vector<RunFigures> runs;
    for (const std::string& source : sources) {
        RunFigures run = read_run(source, &inside, &trend.errors);
        if (run.row.processes != 0) {
            add_run(&runs, std::move(run));
        }
    }
    trend.level = level ? *level : inside && !runs.empty() ? Level::framework : Level::driver;
    std::stable_sort(runs.begin(), runs.end(), [](const RunFigures& a, const RunFigures& b) {
        return a.row.start_wall_ns < b.row.start_wall_ns;
    });
    for (RunFigures& run : runs) {
        run.row.stats = trend.level == Level::driver ? run.driver : run.framework;
        if (!trend.runs.empty()) {
            run.row.change =
                Change{trend.runs.back().stats.allocated_peak, run.row.stats.allocated_peak};
        }
        trend.runs.push_back(std::move(run.row));
    }
    return trend;
}

std::string render_trend_text(const Trend& trend, const Style& style) {
    Page page(style);
    page.line(page.bold(format_plural(trend.runs.size(), "run")) +
              page.dim("  each by its process with the largest peak"));
    page.line("");
    Table<TrendRow> table(page, 0);
    table.left("start", 21, [](const TrendRow& row) { return format_wall_time(row.start_wall_ns); })
        .bytes("allocated", 13, [](const TrendRow& row) { return row.stats.allocated_peak; })
        .bold()
        .right("change", 14,
               [](const TrendRow& row) {
                   return row.change ? format_change(*row.change) : std::string("-");
               })
        .right("", 8, [](const TrendRow& row) {
            return row.change ? format_change_percent(*row.change) : std::string();
        });
    constexpr std::size_t wide = 100;
    if (page.width() >= wide) {
        table.bytes("reserved", 13, [](const TrendRow& row) { return row.stats.reserved_peak; })
            .number("ooms", 6, &TrendRow::ooms);
    }
    table.last("run", [&](const TrendRow& row) {
        const std::string note = row.lacks.empty() ? "" : "  incomplete";
        return shorten_begin(page.clean(row.source), table.last_width() - note.size(),
                             style.ascii) +
               page.yellow(note);
    });
    table.head();
    table.rows(trend.runs, trend.runs.size());
    return page.take();
}

std::string render_trend_json(const Trend& trend) {
    return json_text(JsonObject::of(trend)) + "\n";
}

}  // namespace memlab::report
