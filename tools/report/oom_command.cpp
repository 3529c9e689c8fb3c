#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <string>

#include "report/device_label.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/summary/summary.hpp"
#include "report/views/oom_text.hpp"
#include "report/whatif/oom_advice.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

struct OomArguments : ReportOptions {
    std::size_t stacks = 0;
};

void define(CLI::App& app, OomArguments& arguments) {
    add_files(app, arguments);
    add_sort(app, arguments, {"bytes", "count"});
    add_top(app, arguments, "Holders of each moment");
    app.add_option("--stacks", arguments.stacks, "Whole call stacks of the N largest holders")
        ->type_name("N")
        ->check(check_whole_number);
    add_filter(app, arguments);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    add_json(app, arguments, "the failures");
    add_rendering(app, arguments);
    app.footer(
        "Examples:\n"
        "  memlab-report oom memlab.train.4711.json\n"
        "  memlab-report oom --stacks 3 memlab.train.4711.memlog\n"
        "  memlab-report pool memlab.train.4711.memlog    the pool's layout then\n"
        "  memlab-report whatif memlab.train.4711.memlog  other allocators, too\n"
        "\n"
        "Exit code: 0 success (also when nothing failed), 2 a file could not be read or the usage "
        "is "
        "wrong.");
}

}  // namespace

int oom_command(int argc, char** argv) {
    OomArguments arguments;
    CLI::App app(
        "Explains each allocation that failed for lack of memory: what there was, why it did not "
        "fit, who refused it, which call it was, what held the memory, and, where the event log is "
        "there, what a replay shows to help.",
        "memlab-report oom");
    define(app, arguments);
    parse(app, argc, argv);
    const report::ViewOptions view = make_view_options(arguments);
    return show_reports(arguments, "memlab-ooms", [&](const OpenReport& open) {
        report::Summary summary = make_summary(open, arguments);
        if (arguments.device) {
            std::erase_if(summary.ooms, [&](const report::OomSummary& oom) {
                return !report::is_on(oom.oom->device, *arguments.device);
            });
        }
        report::whatif::advise_on_ooms(report::find_event_log(open.file, open.report),
                                       pool_settings_of, summary);
        std::string only;
        if (!arguments.filter.empty()) {
            only = "Holders: only " + report::printable(arguments.filter.text(), view.style.ascii) +
                   "\n\n";
        }
        return arguments.json ? report::render_ooms_json(summary, open.resolver, arguments.top)
                              : only + report::render_ooms_text(summary, open.resolver, view,
                                                                arguments.stacks);
    });
}

}  // namespace memlab::tools
