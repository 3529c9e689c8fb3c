#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <optional>
#include <string>

#include "own_version.hpp"
#include "report/device_label.hpp"
#include "report/inefficiencies/reserve_findings.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/runs/collection.hpp"
#include "report/summary/summary.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_command.hpp"

namespace memlab::tools {

namespace {

struct SummaryArguments : ReportOptions {
    std::size_t stacks = 0;
};

void define(CLI::App& app, SummaryArguments& arguments) {
    add_files(app, arguments);
    add_json(app, arguments, "the summary");
    add_sort(app, arguments, {"bytes", "count"});
    add_top(app, arguments, "Places in each table");
    app.add_option("--stacks", arguments.stacks, "Whole call stacks of the N largest places")
        ->type_name("N")
        ->check(check_whole_number);
    add_device(app, arguments);
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_follow(app, arguments);
    add_rendering(app, arguments);
    app.set_version_flag("--version", std::string("memlab-report ") + own_version,
                         "Print the version");
    app.footer(list_of_commands() +
               "\n"
               "Examples:\n"
               "  memlab-report memlab.train.4711.json              the summary\n"
               "  memlab-report --stacks 3 memlab.train.4711.json   and whole call stacks\n"
               "  memlab-report --json memlab.*.json | jq .reports[].devices[].curves.allocated\n"
               "  memlab-report --filter module=libcublas memlab.train.4711.json\n"
               "  memlab-report memlab.train.4711.memlog            of a program that was killed\n"
               "  memlab-report run/                                a run of several processes\n"
               "  memlab-report --follow run/                       while they run\n"
               "\n"
               "NO_COLOR, COLUMNS, LANG and LC_ALL are respected.\n"
               "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

void select_device(report::Summary& summary, const std::optional<std::uint64_t>& device) {
    if (device) {
        std::erase_if(summary.devices, [&](const report::DeviceSummary& each) {
            return !report::is_on(each.device->index, *device);
        });
    }
}

int show(const SummaryArguments& arguments) {
    report::TextOptions text;
    text.style = make_style(arguments.style);
    text.top = arguments.top;
    text.stacks = arguments.stacks;
    text.working_directory = working_directory();
    // A filtered run is shown process by process.
    const bool whole = arguments.filter.empty() && !arguments.device && arguments.sort == "bytes";
    if (whole && arguments.files.size() == 1 &&
        report::is_folder(meant_by(arguments.files.front()))) {
        return show_run(
            meant_by(arguments.files.front()),
            {text, arguments.json, !arguments.no_symbols, arguments.skips, arguments.reader});
    }
    return show_reports(arguments, "memlab-summary", [&](const OpenReport& open) {
        report::Summary summary = make_summary(open, arguments);
        select_device(summary, arguments.device);
        if (!arguments.reader) {  // which would read the whole log
            report::try_settings_on_reserve(report::find_event_log(open.file, open.report),
                                            pool_settings_of, summary);
        }
        std::string only;
        if (!arguments.filter.empty()) {
            only = "Places: only " + report::printable(arguments.filter.text(), text.style.ascii) +
                   "\n";
        }
        return arguments.json ? report::render_json(summary, open.resolver, arguments.top)
                              : only + report::render_text(summary, open.resolver, text);
    });
}

}  // namespace

int summary_command(int argc, char** argv) {
    SummaryArguments arguments;
    CLI::App app(
        "Shows what memlab recorded of a program's GPU memory: peaks, timeline, who held it, what "
        "was never freed, and why an allocation failed.",
        "memlab-report");
    define(app, arguments);
    parse(app, argc, argv);
    arguments.find_steps = true;
    return show_or_follow(arguments, [&] { return show(arguments); });
}

}  // namespace memlab::tools
