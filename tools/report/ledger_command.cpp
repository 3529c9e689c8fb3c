// memlab-report ledger: every byte of a GPU.
#include <CLI/CLI.hpp>
#include <string>

#include "report/views/ledger_text.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

struct LedgerArguments : ReportOptions {
    std::string at = "peak";
};

void define(CLI::App& app, LedgerArguments& arguments) {
    add_files(app, arguments);
    app.add_option("--at", arguments.at,
                   "peak (default): the sample with most memory in use; end: the last sample")
        ->type_name("MOMENT")
        ->check(one_of({"peak", "end"}));
    add_top(app, arguments, "Rows of each group");
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    add_json(app, arguments, "the ledgers of both moments");
    add_rendering(app, arguments);
    app.footer(
        "Examples:\n"
        "  memlab-report ledger memlab.train.4711.json\n"
        "  memlab-report ledger --at end memlab.train.4711.memlog\n"
        "  memlab-report check --limit contexts=1 memlab.train.4711.json\n"
        "\n"
        "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

}  // namespace

int ledger_command(int argc, char** argv) {
    LedgerArguments arguments;
    CLI::App app(
        "Every byte of each GPU: what the program allocated, and what contexts, code, graphs and "
        "streams took in addition.",
        "memlab-report ledger");
    define(app, arguments);
    parse(app, argc, argv);
    const report::ViewOptions view = make_view_options(arguments);
    const report::LedgerAt at =
        arguments.at == "end" ? report::LedgerAt::end : report::LedgerAt::peak;
    return show_reports(arguments, "memlab-ledgers", [&](const OpenReport& open) {
        return arguments.json
                   ? report::render_ledger_json(open.file, open.report, open.resolver, view)
                   : report::render_ledger_text(open.report, open.resolver, at, view);
    });
}

}  // namespace memlab::tools
