#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "report/views/leaks.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

struct LeaksArguments : ReportOptions {
    std::vector<std::string> suppressions;
    bool no_defaults = false;
    bool show_suppressed = false;
    bool generate = false;
    bool growth = false;
};

void define(CLI::App& app, LeaksArguments& arguments) {
    add_files(app, arguments);
    add_repeated(app, "--suppressions", arguments.suppressions,
                 "What may stay allocated, see below; may be repeated")
        ->type_name("FILE");
    app.add_flag("--no-default-suppressions", arguments.no_defaults,
                 "Also show what cuBLAS, cuDNN, NCCL and PyTorch keep with their handles");
    app.add_flag("--show-suppressed", arguments.show_suppressed,
                 "Also show the places of each suppression");
    CLI::Option* generate = app.add_flag("--generate-suppressions", arguments.generate,
                                         "Print a suppression file for what leaked, to edit");
    app.add_flag(
           "--growth", arguments.growth,
           "Show what grows from step to step instead; if the program marks no steps, of those "
           "found in its event log")
        ->excludes(generate);
    add_sort(app, arguments, {"bytes", "count"});
    app.get_option("--growth")->excludes("--sort");
    add_top(app, arguments, "Places of each GPU", 20);
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    CLI::Option* json =
        app.add_flag("--json", arguments.json, "Print all of it as JSON, for scripts");
    json->excludes(generate);
    add_rendering(app, arguments);
    app.footer(
        "A suppression file has a block for each thing that may stay allocated:\n"
        "\n"
        "  # comment\n"
        "  [attention masks]\n"
        "  reason = cached for the whole run on purpose\n"
        "  func   = mask_for\n"
        "  module = libattention.so*\n"
        "\n"
        "reason, and at least one of func, file, module, kind and api, each once; all must match. "
        "Patterns are those of --filter. The memory of a CUDA context is not an allocation and "
        "needs no suppression.\n"
        "\n"
        "Examples:\n"
        "  memlab-report leaks memlab.train.4711.json\n"
        "  memlab-report leaks --generate-suppressions memlab.*.json > known.supp\n"
        "  memlab-report leaks --suppressions known.supp run/\n"
        "  memlab-report leaks --growth memlab.train.4711.json    from step to step\n"
        "  memlab-report tree --sort live memlab.train.4711.json  by which calls\n"
        "\n"
        "Exit code: 0 success, whatever leaked (memlab-report check fails a build); 2 a file could "
        "not be read or the usage is wrong.");
}

}  // namespace

int leaks_command(int argc, char** argv) {
    LeaksArguments arguments;
    CLI::App app(
        "Shows what the program still held when it ended, by place, and which of it is expected.",
        "memlab-report leaks");
    define(app, arguments);
    parse(app, argc, argv);
    const report::SuppressionList suppressions =
        report::read_suppressions(arguments.suppressions, !arguments.no_defaults);
    if (!suppressions.problem.empty()) {
        return fail(suppressions.problem);
    }
    report::LeakOptions options{make_view_options(arguments)};
    options.show_suppressed = arguments.show_suppressed;
    options.growth = arguments.growth;
    arguments.find_steps = arguments.growth || arguments.json;
    return show_reports(arguments, "memlab-leaks", [&](const OpenReport& open) {
        const report::Leaks leaks = report::find_leaks(
            open.report, open.resolver, arguments.filter.sites(open.report, open.resolver),
            suppressions.list, options);
        if (arguments.generate) {
            return report::generate_suppressions(leaks);
        }
        return arguments.json ? report::render_leaks_json(open.file, open.report, open.resolver,
                                                          leaks, options)
                              : report::render_leaks_text(open.report, leaks, options);
    });
}

}  // namespace memlab::tools
