// libFuzzer: any bytes as a recording, through every view that reads the event log again behind the
// report (timeline, pool, lines, histogram, what-if) or several reports at once (check, merge). The
// views of a report alone are fuzz_report_reader's.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/check/render.hpp"
#include "report/histogram/render.hpp"
#include "report/html/page.hpp"
#include "report/inefficiencies/render.hpp"
#include "report/lines/render.hpp"
#include "report/pool_view/render.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/reader.hpp"
#include "report/reading/validate.hpp"
#include "report/runs/render.hpp"
#include "report/summary/place_text.hpp"
#include "report/timeline/moments.hpp"
#include "report/timeline/render.hpp"
#include "report/views/oom_text.hpp"
#include "report/whatif/pool_settings.hpp"
#include "report/whatif/render.hpp"
#include "report/whatif/replay.hpp"
#include "tests/fuzz/format_rules.hpp"
#include "tests/fuzz/fuzz_input.hpp"

namespace {

using namespace memlab;
using namespace memlab::fuzz;
using namespace memlab::model;
using namespace memlab::report;

/// A recording, and how its views are to look.
struct Shown {
    const std::string& file;
    const std::string& log;  ///< empty: there is none
    const Report& report;
    Resolver& resolver;
    const ViewOptions& options;
    std::size_t seed;
};

void show_timeline(const Shown& shown) {
    const std::uint64_t end = shown.report.process.duration_ns;
    const std::uint64_t from = shown.seed % 3 == 0 ? end / 4 : 0;
    const std::uint64_t to = shown.seed % 2 == 0 ? end : std::max(from + 1, end / 2);
    TimelineView view = read_timeline(shown.report, shown.log, from, to, std::nullopt);
    if (!shown.log.empty() && shown.seed % 2 == 0) {
        add_categories(view, shown.report, shown.log, shown.resolver);
        require(!render_categories_csv(view).empty());
    }
    MomentView moment{.time_ns = to, .name = "end", .at_peak = false, .report = nullptr};
    std::optional<Report> then;
    std::optional<Resolver> resolver;
    if (!shown.log.empty()) {
        then = report_at(shown.log, to, shown.report);
    }
    if (then) {
        moment.report = &*then;
        resolver.emplace(*then, nullptr);
        const std::vector<bool> all(then->sites.size(), true);
        for (SiteTable& table : site_tables(*then, *resolver, all, shown.options)) {
            if (!table.kind.empty()) {
                continue;
            }
            const auto device = std::find_if(
                view.devices.begin(), view.devices.end(),
                [&](const auto& each) { return each.device->index == table.device->index; });
            require(device != view.devices.end());
            moment.tables.push_back(std::move(table));
        }
    }
    const MomentView* const at =
        moment.tables.size() == view.devices.size() && then ? &moment : nullptr;
    require(!render_timeline_text(shown.report, view, at, shown.options).empty());
    require(is_json(render_timeline_json(shown.file, view, at, shown.options)));
    require(is_clean_text(render_timeline_csv(view)));
    for (const DeviceTimeline& device : view.devices) {
        for (const auto& curve : device.curves) {
            require(!curve ||
                    (curve->lowest <= curve->at_begin && curve->at_begin <= curve->highest &&
                     curve->lowest <= curve->at_end && curve->at_end <= curve->highest));
        }
    }
}

void show_pools(const Shown& shown) {
    std::vector<const Device*> devices;
    for (const Device& device : shown.report.devices) {
        if (device.used()) {
            devices.push_back(&device);
        }
    }
    PoolCollector collected(3);
    const PoolSnapshots pools = snapshot_pools(devices, shown.log, collected);
    for (const DevicePool& pool : pools.devices) {
        for (const PoolSnapshot& moment : pool.moments) {
            require(moment.active_bytes() <= moment.reserved_bytes());
            require(moment.largest_free() <= moment.reserved_bytes() - moment.active_bytes());
        }
    }
    const PoolViewOptions options{shown.options.style, shown.options.top, shown.seed % 2 == 0, ""};
    require(shown.report.devices.empty() || devices.empty() ||
            !render_pools(pools, shown.resolver, options).empty());
    require(is_json(pools_json(pools, shown.resolver)));
}

void show_inefficiencies(const Shown& shown) {
    InefficiencyQuery query;
    query.taken.assign(shown.report.sites.size(), true);
    std::string problem;
    const Inefficiencies found =
        find_inefficiencies(shown.report, shown.resolver, shown.log, query, &problem);
    require(problem.empty() == !shown.log.empty());
    for (const DeviceFindings& device : found.devices) {
        for (const Finding& finding : device.findings) {
            require(finding.saving.peak_bytes <= device.device->curve(Curve::allocated).peak_bytes);
            require(finding.saving.reserved_bytes <=
                    device.device->curve(Curve::reserved).peak_bytes);
        }
    }
    require(!problem.empty() || !render_inefficiencies(found, shown.options).empty());
    require(is_json(inefficiencies_json(shown.report, shown.resolver, found, shown.options)));
}

void show_histograms(const Shown& shown) {
    AllocationCounts counts;
    std::vector<bool> taken(shown.report.sites.size());
    for (std::size_t i = 0; i < taken.size(); ++i) {
        taken[i] = (i + shown.seed) % 3 != 0;
    }
    const Histograms found = histograms(shown.report, shown.log, counts, taken, std::nullopt);
    const HistogramTextOptions options{shown.options.style, shown.seed % 3 != 0,
                                       shown.seed % 3 != 1, ""};
    require(is_clean_text(render_histograms_text(found, options)));
    require(is_json(render_histograms_json(shown.file, found, options)));
}

void show_lines(const Shown& shown) {
    LineQuery query;
    if (!shown.report.python_frames.empty()) {
        query.file =
            shown.report.python_frames[shown.seed % shown.report.python_frames.size()].file;
    }
    query.file = query.file.empty() ? "a" : query.file;
    query.every = shown.seed % 3;
    query.columns = {"active", "reserved", "bytes", "live", "at_peak", "allocated_bytes.all.peak"};
    std::string problem;
    const LineTables tables = line_tables(shown.report, shown.resolver, shown.log, query, &problem);
    require(problem.find('\n') == std::string::npos);
    StackMoments seen(query);
    const ReadResult read = read_report(shown.file, seen.sink_factory());
    require(read.report && read.error.empty());
    std::string same_problem;
    require(lines_json(line_tables(shown.report, shown.resolver, shown.log, query, &same_problem,
                                   &seen)) == lines_json(tables));
    require(same_problem == problem);
    LineTextOptions options;
    options.style = shown.options.style;
    require(!problem.empty() || !render_lines(tables, options).empty());
    require(is_json(lines_json(tables)));
}

/// What-if settings that are the environment's are the tool's to read: passed over.
bool read_pool(const report::whatif::PoolSettings& settings, allocator::PoolOptions* options,
               bool* one_stream, std::string* problem) {
    *options = {};
    *one_stream = false;
    return std::all_of(settings.begin(), settings.end(), [&](const auto& setting) {
        return setting.first.starts_with("MEMLAB_") ||
               report::whatif::set_pool_option(setting.first, setting.second, options, problem);
    });
}

void show_whatif(const Shown& shown) {
    std::string error;
    const report::whatif::Recording recording = report::whatif::read_recording(shown.log, &error);
    if (!error.empty()) {
        return;
    }
    std::vector<report::whatif::Policy> policies;
    for (const std::string& name : report::whatif::default_policies()) {
        std::string problem;
        require(report::whatif::read_policy(name, read_pool, &policies.emplace_back(), &problem));
    }
    std::vector<report::whatif::Table> tables;
    for (const report::whatif::Program& program : recording.programs) {
        tables.push_back(report::whatif::tabulate(program, policies, std::nullopt));
    }
    const report::whatif::DescribeStack describe_stack = [&](std::uint32_t stack) {
        return stack < shown.report.stacks.size() ? location_text(shown.resolver.place(stack), "")
                                                  : std::string();
    };
    require(!report::whatif::render_text(recording, tables, shown.options.style, describe_stack)
                 .empty());
    require(is_json(report::whatif::render_json(shown.log, recording, tables, describe_stack)));
}

void show_failures(const Shown& shown) {
    const Summary summary = summarize(shown.file, shown.report, shown.resolver);
    require(!render_ooms_text(summary, shown.resolver, shown.options, 2).empty());
    require(is_json(render_ooms_json(summary, shown.resolver, 3)));
}

void show_page(const Shown& shown) {
    PageOptions options;
    options.suppressions = &default_suppressions();
    options.limits.moments = 30;
    options.limits.buckets = 32;
    options.limits.sites = shown.seed % 8;
    PageData page;
    page.recordings.push_back(read_recording(shown.file, shown.report, nullptr, options));
    for (const std::size_t room : {max_page_data, std::size_t{1}}) {
        require(is_json(page_json(page, options, room)));
    }
}

/// Two processes with the same past, as far as gates and comparisons can tell.
RunCollection run_of_two(const Shown& shown) {
    RunCollection run;
    for (const char* file : {"a.json", "b.json"}) {
        RunMember& member = run.members.emplace_back();
        member.file = file;
        member.report = shown.report;
    }
    return run;
}

void hold_to_limits(const Shown& shown) {
    const RunCollection run = run_of_two(shown);
    const report::check::ProcessOptions process_options{
        .symbolizer = nullptr, .device = std::nullopt, .suppressions = default_suppressions()};
    const std::vector<report::check::Process> processes =
        report::check::prepare_processes(run, process_options);
    std::vector<report::check::Limit> limits;
    for (const report::check::MetricInfo& metric : report::check::metrics()) {
        std::string problem;
        const auto bound = report::check::parse_bound(
            metric.unit == report::check::Unit::share ? "1%" : "1", metric.unit, &problem);
        require(bound.has_value());
        limits.push_back({metric.metric, report::check::Subject(), *bound, "--limit"});
        for (const auto kind :
             {report::check::Subject::Kind::site, report::check::Subject::Kind::scope}) {
            if (report::check::measures(metric, kind)) {
                limits.push_back({metric.metric, {kind, "a"}, *bound, "--limit"});
            }
        }
    }
    const report::check::Outcome outcome = report::check::check(processes, limits, {});
    require(outcome.exit_code() >= 0 && outcome.exit_code() <= 2);
    const report::check::View view{processes, outcome, "", "0"};
    require(!report::check::render_text(view, shown.options.style, 3).empty());
    require(is_clean_text(report::check::render_markdown(view)));
    require(is_xml(report::check::render_junit(view)));
    require(is_json(report::check::render_sarif(view)));
    require(is_json(report::check::render_json(view)));
    const std::string annotations = report::check::render_annotations(view);
    std::size_t lines = 0;
    for (std::size_t at = 0; at < annotations.size(); ++lines) {
        require(annotations.compare(at, 8, "::error ") == 0);
        at = annotations.find('\n', at) + 1;
    }
    require(lines <= 10);
    const std::vector<report::check::BaselineFigure> figures =
        report::check::baseline_figures(processes, limits);
    const report::check::BaselineResult again =
        report::check::parse_baseline(report::check::baseline_text(figures));
    require(again.baseline && again.error.empty());
}

void compare(const Shown& shown) {
    const RunView view = view_run("run", run_of_two(shown));
    require(!render_run_text(view, shown.options.style).empty());
    require(is_json(render_run_json(view)));
    std::vector<Resolver> resolvers;
    resolvers.reserve(2);
    for (const RunMember& member : view.collection.members) {
        resolvers.emplace_back(member.report, nullptr);
    }
    const RankComparison ranks = compare_ranks(
        view.collection, [&](std::size_t member) -> Resolver& { return resolvers[member]; });
    if (!ranks.ranks.empty()) {
        for (const bool by_nn_module : {false, true}) {
            require(!render_ranks_text(view, ranks, {shown.options.style, 3, by_nn_module, ""})
                         .empty());
        }
        require(is_json(render_ranks_json(view, ranks)));
    }
}

void show_all(const std::uint8_t* data, std::size_t size) {
    const MemoryFile file(data, size);
    const std::string path = file.path();
    const Validation validation = validate(read_with_model(path));
    const ReadResult read = read_report(path);
    if (!read.report) {
        require(!read.error.empty() && !validation.sound());
        return;
    }
    const std::string log = find_event_log(path, *read.report);
    Resolver resolver(*read.report, nullptr);
    ViewOptions options;
    options.top = size % 7 + 1;
    options.style.ascii = size % 2 == 0;
    options.style.width = 40 + static_cast<int>(size % 81);
    const Shown shown{path, log, *read.report, resolver, options, size};
    show_timeline(shown);
    show_pools(shown);
    show_inefficiencies(shown);
    show_lines(shown);
    show_failures(shown);
    show_page(shown);
    hold_to_limits(shown);
    compare(shown);
    if (!log.empty()) {
        show_histograms(shown);
        show_whatif(shown);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    show_all(data, size);
    const auto log = as_open_log(data, size);
    show_all(log.data(), log.size());
    return 0;
}
