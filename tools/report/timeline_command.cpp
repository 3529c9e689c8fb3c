#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "report/device_label.hpp"
#include "report/levels.hpp"
#include "report/reading/needs_log.hpp"
#include "report/reading/reader.hpp"
#include "report/summary/json_values.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/timeline/moments.hpp"
#include "report/timeline/render.hpp"
#include "report/timeline/timeline.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/moments.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

struct TimelineArguments : ReportOptions, MomentOptions {
    bool csv = false;
    std::string by;
};

void define(CLI::App& app, TimelineArguments& arguments) {
    add_one_file(app, arguments);
    app.add_option("--from", arguments.from,
                   "Start there: 1.5s, 200ms, 3us, peak, or a mark's name")
        ->type_name("MOMENT");
    app.add_option("--until", arguments.until, "End there (default: the end)")->type_name("MOMENT");
    CLI::Option* at = app.add_option("--at", arguments.at,
                                     "List what was live then, by place; from a report peak and "
                                     "end, from an event log any moment")
                          ->type_name("MOMENT");
    app.add_option("--by", arguments.by,
                   "category: what PyTorch used the memory for, over time: parameters, gradients, "
                   "optimizer state, activations and so on; from an event log; nn-module: with "
                   "--at, what each PyTorch nn.Module held")
        ->type_name("WHAT")
        ->check(one_of({"category", "nn-module"}));
    add_top(app, arguments, "Places and marks in the lists");
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    CLI::Option* csv = app.add_flag("--csv", arguments.csv, "Print the curves as CSV");
    csv->excludes(at);
    add_json(app, arguments, "the curves, marks, scopes and failures");
    csv->excludes("--json");
    add_follow(app, arguments);
    add_rendering(app, arguments);
    app.footer(
        "CSV columns: device, begin_ns, end_ns; the lowest (_min), highest (_max) and last (_last) "
        "value of requested, allocated, active, reserved and device_used in that interval, in "
        "bytes; values hold until the next row; memory: empty, or managed or pinned, which these "
        "curves do not include: then the columns of allocated have its values. With --by category: "
        "device, begin_ns, end_ns, at_ns (when allocated was highest in that interval), allocated "
        "and each category at that moment, and the same at the end (_last).\n"
        "\n"
        "Examples:\n"
        "  memlab-report timeline memlab.train.4711.memlog\n"
        "  memlab-report timeline --from 1.2s --until 1.25s memlab.train.4711.memlog\n"
        "  memlab-report timeline --at 'epoch 2' memlab.train.4711.memlog\n"
        "  memlab-report timeline --by category memlab.python3.4711.json\n"
        "  memlab-report timeline --csv memlab.train.4711.memlog > memory.csv\n"
        "\n"
        "An event log also has scopes, and its curves are finer for shorter intervals.\n"
        "Exit code: 0 success, 2 the file could not be read or the usage is wrong.");
}

/// A table for each GPU of the timeline, including unused ones.
std::vector<report::SiteTable> tables_at(const report::TimelineView& view,
                                         const model::Report& then, report::Resolver& resolver,
                                         const report::Filter& filter,
                                         const report::ViewOptions& options) {
    std::vector<report::SiteTable> tables;
    std::vector<report::SiteTable> found =
        report::site_tables(then, resolver, filter.sites(then, resolver), options);
    for (const report::DeviceTimeline& timeline : view.devices) {
        report::SiteTable& table = tables.emplace_back();
        for (report::SiteTable& each : found) {
            if (each.kind.empty() && each.device->index == timeline.device->index) {
                table = std::move(each);
            }
        }
        table.device = timeline.device;
    }
    return tables;
}

int show(const TimelineArguments& arguments, const LoadedReport& loaded,
         const report::TimelineCollector& collected, const report::MomentCollector& moments) {
    const model::Report& report = loaded.report;
    const report::FoundLog found = report::look_for_log(loaded.file, report);
    const std::string& log = found.path;
    if (const std::string problem = check_device(report, arguments.device); !problem.empty()) {
        return fail(loaded.file + ": " + problem);
    }
    Interval stretch;
    if (const std::string problem = find_interval(arguments, report, arguments.device, &stretch);
        !problem.empty()) {
        return fail(problem);
    }
    if (arguments.by == "category" && log.empty()) {
        return fail(loaded.file + ": " +
                    report::needs_log(found, "a report does not know categories over time"));
    }
    report::TimelineView view = report::read_timeline(report, log, stretch.from_ns, stretch.to_ns,
                                                      arguments.device, &collected);
    const report::ChosenOoms chosen(report);
    std::erase_if(view.ooms, [&](const report::TimelineOom& oom) {
        return !chosen.has(oom.time_ns, oom.device, oom.requested_bytes);
    });
    report::Symbolizer symbolizer;
    if (arguments.by == "category") {
        report::Resolver of_whole(report, arguments.no_symbols ? nullptr : &symbolizer);
        report::add_categories(view, report, log, of_whole);
    }
    if (arguments.csv) {
        std::cout << (view.by_category ? report::render_categories_csv(view)
                                       : report::render_timeline_csv(view));
        std::cout.flush();
        for (const std::string& lack : report::sentences(loaded.lacks)) {
            print_diagnostic(report::printable(loaded.file + ": " + lack, false));
        }
        return flush_output(EXIT_SUCCESS);
    }
    report::ViewOptions options = make_view_options(arguments);

    std::optional<model::Report> then;
    std::optional<report::Resolver> resolver;
    std::optional<report::MomentView> moment;
    if (stretch.at_ns) {
        moment.emplace();
        moment->time_ns = *stretch.at_ns;
        moment->name = arguments.at;
        moment->at_peak =
            arguments.at == "peak" &&
            std::any_of(report.devices.begin(), report.devices.end(),
                        [](const model::Device& device) {
                            return device.used() && !report::is_outside_curves_only(device);
                        });
        moment->report = &report;
        if (!moment->at_peak && arguments.at != "end") {
            if (log.empty()) {
                return fail(loaded.file + ": " +
                            report::needs_log(found, report::live_at_few_moments));
            }
            then = report::report_at(log, *stretch.at_ns, report, moments);
            if (!then) {
                return fail(loaded.file + ": " + report::not_replayable(report, arguments.at));
            }
            apply_options(*then, arguments);
            moment->report = &*then;
        }
        options.order = report::Order::live;  // of all kinds in one table
        if (arguments.by_nn_module) {
            options.by = report::SitesBy::nn_module;
        }
        resolver.emplace(*moment->report, arguments.no_symbols ? nullptr : &symbolizer,
                         arguments.skips);
        moment->tables = tables_at(view, *moment->report, *resolver, arguments.filter, options);
    }
    const report::MomentView* const at = moment ? &*moment : nullptr;
    if (arguments.json) {
        const std::string shown = report::render_timeline_json(loaded.file, view, at, options);
        std::cout << report::json_document("memlab-timeline",
                                           {report::with_lacks(shown, loaded.lacks)}, {});
    } else {
        std::cout << report::render_timeline_text(report, view, at, options)
                  << lacks_text(loaded.lacks, options.style);
    }
    return flush_output(EXIT_SUCCESS);
}

/// The ends of a stretch that are the peak or a mark are known when the log has been read.
report::TimelineCollector collector_of(const MomentOptions& options) {
    constexpr std::uint64_t end = report::TimelineCollector::end;
    const std::uint64_t from = report::time_of_moment(options.from).value_or(0);
    return report::TimelineCollector(from, report::time_of_moment(options.until).value_or(end));
}

/// Why a timeline cannot be followed with these options: they need the whole log each time. Empty:
/// it can.
std::string not_to_follow(const TimelineArguments& arguments) {
    if (!arguments.at.empty() || !arguments.by.empty()) {
        return std::string(arguments.at.empty() ? "--by" : "--at") +
               " needs the whole recording and does not go with --follow; leave one out";
    }
    for (const auto& [option, moment] :
         {std::pair("--from", arguments.from), std::pair("--until", arguments.until)}) {
        if (!moment.empty() && !report::time_of_moment(moment)) {
            return std::string(option) + " with --follow takes a time (1.5s, 200ms), not " + moment;
        }
    }
    return "";
}

}  // namespace

int timeline_command(int argc, char** argv) {
    TimelineArguments arguments;
    CLI::App app(
        "Shows GPU memory over time, with marks, scopes and failures; any interval of it, and what "
        "was live at a moment.",
        "memlab-report timeline");
    define(app, arguments);
    parse(app, argc, argv);
    if (arguments.at.empty() && !arguments.filter.empty()) {
        return fail("--filter chooses from what --at lists; add --at MOMENT");
    }
    arguments.by_nn_module = arguments.by == "nn-module";
    if (arguments.at.empty() && arguments.by_nn_module) {
        return fail("--by nn-module is of what --at lists; add --at MOMENT");
    }
    if (arguments.at.empty() && arguments.skips.given()) {
        return fail("--skip is for the places that --at lists; add --at MOMENT");
    }
    if (const std::string problem = arguments.follow ? not_to_follow(arguments) : "";
        !problem.empty()) {
        return fail(problem);
    }
    report::TimelineCollector collected = collector_of(arguments);
    report::MomentCollector moments({arguments.at});
    const report::LogSinkFactory sinks = moments.sink_factory(collected.sink_factory());
    const auto show_file = [&] {
        return with_memory_for(arguments.files.front(), [&] {
            std::string problem;
            std::optional<LoadedReport> loaded =
                load_report(arguments.files.front(), &problem, "name the report of one of them",
                            sinks, report::StepSearch::none, arguments.reader);
            if (!loaded) {
                return fail(problem);
            }
            if (const std::string log = report::find_event_log(loaded->file, loaded->report);
                !arguments.at.empty() && !log.empty() && collected.log() != log) {
                report::read_through(log, sinks);  // one reading for both
            }
            apply_options(loaded->report, arguments);
            return show(arguments, *loaded, collected, moments);
        });
    };
    return show_or_follow(arguments, show_file, sinks);
}

}  // namespace memlab::tools
