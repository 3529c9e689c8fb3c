// memlab-report histogram: allocations by size and by lifetime.
#include <CLI/CLI.hpp>
#include <string>

#include "report/histogram/histogram.hpp"
#include "report/histogram/render.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/needs_log.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

namespace {

struct HistogramArguments : ReportOptions {
    std::string by;
};

void define(CLI::App& app, HistogramArguments& arguments) {
    add_files(app, arguments);
    app.add_option("--by", arguments.by, "size or lifetime alone; else both")
        ->type_name("WHAT")
        ->check(one_of({"size", "lifetime"}));
    add_filter(app, arguments);
    add_device(app, arguments);
    add_json(app, arguments, "the histograms");
    add_rendering(app, arguments);
    app.footer(
        "Each bucket covers one power of two: of the requested size, or of the time until the "
        "free. All kinds of memory count, as in memlab-report sites; total includes rounding. The "
        "bars show the number of allocations.\n"
        "\n"
        "Examples:\n"
        "  memlab-report histogram memlab.train.4711.json\n"
        "  memlab-report histogram --by lifetime --filter kind=device run/\n"
        "  memlab-report histogram --by size --filter func=forward train.memlog\n"
        "\n"
        "It needs the event log, which is found in the report's folder.\n"
        "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

}  // namespace

int histogram_command(int argc, char** argv) {
    HistogramArguments arguments;
    CLI::App app("Shows which sizes a program allocates, and how long it keeps them.",
                 "memlab-report histogram");
    define(app, arguments);
    parse(app, argc, argv);
    const report::HistogramTextOptions text{make_style(arguments.style), arguments.by != "lifetime",
                                            arguments.by != "size", arguments.filter.text()};
    report::AllocationCounts counts;
    const auto show = [&](const OpenReport& open) {
        const report::FoundLog log = report::look_for_log(open.file, open.report);
        if (log.empty()) {
            throw CannotShow{report::needs_log(log, "has sums, not single allocations")};
        }
        const report::Histograms found = report::histograms(
            open.report, log.path, counts, arguments.filter.sites(open.report, open.resolver),
            arguments.device);
        return arguments.json ? report::render_histograms_json(open.file, found, text)
                              : report::render_histograms_text(found, text);
    };
    return show_reports(arguments, "memlab-histogram", show, counts.sink_factory());
}

}  // namespace memlab::tools
