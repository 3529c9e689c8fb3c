#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <vector>

#include "report/device_label.hpp"
#include "report/pool_view/layout.hpp"
#include "report/pool_view/render.hpp"
#include "report/reading/find_event_log.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

/// Failures for which the layout is shown; more would repeat it.
constexpr std::size_t max_ooms = 3;

void define(CLI::App& app, ReportOptions& options, bool& all_figures) {
    add_files(app, options);
    add_top(app, options, "Segments and places of each moment");
    app.add_flag("--stats", all_figures, "The statistics of the small and the large pool, too");
    add_device(app, options);
    add_skip(app, options.skips);
    add_json(app, options, "segments, blocks and statistics");
    add_rendering(app, options);
    app.footer(
        "A segment is memory that the pool took from the driver; it can be given back when it "
        "holds no block. The picture shows the segments with most free memory, each from its start "
        "to its end; the table below names who keeps them.\n"
        "\n"
        "Examples:\n"
        "  memlab-report pool memlab.train.4711.json\n"
        "  memlab-report pool --top 40 --stats memlab.train.4711.memlog\n"
        "  memlab-report pool --json memlab.train.4711.memlog\n"
        "\n"
        "The pictures need the event log, which is found in the report's folder.\n"
        "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

}  // namespace

int pool_command(int argc, char** argv) {
    ReportOptions options;
    bool all_figures = false;
    CLI::App app(
        "Shows the layout of memlab's pool at the peak, when memory ran out and at the end, "
        "which blocks keep segments from being given back, and the pool's statistics.",
        "memlab-report pool");
    define(app, options, all_figures);
    parse(app, argc, argv);
    const PoolViewOptions view{make_style(options.style), options.top, all_figures,
                               working_directory()};
    PoolCollector collected(max_ooms);
    const auto show = [&](const OpenReport& open) {
        std::vector<const model::Device*> devices;
        for (const model::Device& device : open.report.devices) {
            if (device.used() && (!options.device || is_on(device.index, *options.device))) {
                devices.push_back(&device);
            }
        }
        const PoolSnapshots pools =
            snapshot_pools(devices, find_event_log(open.file, open.report), collected);
        return options.json ? pools_json(pools, open.resolver)
                            : render_pools(pools, open.resolver, view);
    };
    return show_reports(options, "memlab-pool", show, collected.sink_factory());
}

}  // namespace memlab::tools
