#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "report/views/call_tree.hpp"
#include "report/views/nn_modules.hpp"
#include "report/views/site_table.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

constexpr const char* what_orders_mean =
    "\n"
    "  peak         bytes held when this GPU's allocated memory was at its peak\n"
    "  bytes        bytes allocated over the whole run\n"
    "  count        allocations over the whole run\n"
    "  live         bytes held at the end\n"
    "  temporaries  allocations freed before their thread allocated anything else\n"
    "Shares are of the GPU's total in that order, whatever --filter selects.\n";

struct TreeArguments : ReportOptions {
    bool bottom_up = false;
    bool top_down = false;
    bool all_frames = false;
    double least_percent = 1;
};

std::string percent(const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool good = !text.empty() && *end == '\0' && value >= 0 && value <= 100;
    return good ? std::string() : "takes a number of percent from 0 to 100, not " + text;
}

void define(CLI::App& app, TreeArguments& arguments) {
    add_files(app, arguments);
    CLI::Option* up = app.add_flag("--bottom-up", arguments.bottom_up,
                                   "From the place that allocated to its callers (default)");
    app.add_flag("--top-down", arguments.top_down, "From the outermost function to the places")
        ->excludes(up);
    add_sort(app, arguments, report::order_names());
    app.add_option("--min", arguments.least_percent,
                   "Fold branches below this share into one row (default 1)")
        ->type_name("PERCENT")
        ->check(percent);
    add_top(app, arguments, "Children of each node");
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    app.add_flag(
        "--all-frames", arguments.all_frames,
        "Also CUDA's frames, frameworks' allocators and interpreters, and what calls main");
    add_templates(app, arguments);
    add_json(app, arguments, "the tree");
    add_rendering(app, arguments);
    app.footer(std::string("Orders:") + what_orders_mean +
               "\n"
               "A row without figures has the same figures as the row above; the tree is indented "
               "where it branches.\n"
               "\n"
               "Examples:\n"
               "  memlab-report tree memlab.train.4711.json              who held the peak\n"
               "  memlab-report tree --top-down --min 5 run/             from main downwards\n"
               "  memlab-report tree --sort temporaries memlab.*.memlog  who churns\n"
               "  memlab-report tree --filter func=forward memlab.train.4711.json\n"
               "\n"
               "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
}

}  // namespace

int sites_command(int argc, char** argv) {
    ReportOptions arguments;
    std::string by = "place";
    CLI::App app(
        "Shows GPU memory by call site: a row for each source location and kind of memory.",
        "memlab-report sites");
    add_files(app, arguments);
    add_sort(app, arguments, report::order_names());
    app.add_option("--by", by,
                   "place (default), or category: what PyTorch uses the memory for, parameters, "
                   "gradients, optimizer state, activations and so on; or nn-module: the innermost "
                   "nn.Module of PyTorch's that holds it")
        ->type_name("WHAT")
        ->check(one_of({"place", "category", "nn-module"}));
    add_top(app, arguments, "Places of each GPU", 20);
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    add_json(app, arguments, "the table");
    add_follow(app, arguments);
    add_rendering(app, arguments);
    app.footer(std::string("Orders:") + what_orders_mean +
               "\n"
               "Examples:\n"
               "  memlab-report sites memlab.train.4711.json      who held the peak\n"
               "  memlab-report sites --sort count memlab.*.json  who allocates most often\n"
               "  memlab-report sites --by category memlab.python3.*.json\n"
               "  memlab-report sites --filter kind=pinned --sort live run/\n"
               "  memlab-report sites --nn-module 'encoder.*' memlab.python3.*.json\n"
               "  memlab-report sites --json memlab.train.4711.json | jq .reports[].devices[]\n"
               "  memlab-report sites --follow --sort live memlab.train.4711.memlog\n"
               "\n"
               "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
    parse(app, argc, argv);
    arguments.by_nn_module = by == "nn-module";
    if (const std::string problem = check_order(arguments); !problem.empty()) {
        return fail(problem);
    }
    return show_or_follow(arguments, [&] {
        report::ViewOptions view = make_view_options(arguments);
        view.by = by == "category"         ? report::SitesBy::category
                  : arguments.by_nn_module ? report::SitesBy::nn_module
                                           : report::SitesBy::place;
        return show_reports(arguments, "memlab-sites", [&](const OpenReport& open) {
            const auto tables =
                report::site_tables(open.report, open.resolver,
                                    arguments.filter.sites(open.report, open.resolver), view);
            return arguments.json ? report::render_sites_json(open.file, tables, view)
                                  : report::render_sites_text(tables, view);
        });
    });
}

int nn_modules_command(int argc, char** argv) {
    ReportOptions arguments;
    CLI::App app("Shows what each GPU held at its peak by nn.Module of PyTorch, and by category.",
                 "memlab-report nn-modules");
    add_files(app, arguments);
    add_top(app, arguments, "nn.Modules within each");
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_json(app, arguments, "all nn.Modules");
    add_follow(app, arguments);
    add_rendering(app, arguments);
    app.footer(
        "Memory counts for the innermost nn.Module whose call allocated it; in backward, for the "
        "one whose forward it belongs to; outside of calls, for the one whose parameter, buffer or "
        "optimizer state its label names. A row includes the nn.Modules inside it, by qualified "
        "name.\n"
        "\n"
        "Examples:\n"
        "  memlab-report nn-modules memlab.python3.4711.json\n"
        "  memlab-report nn-modules --top 3 run/\n"
        "\n"
        "Exit code: 0 success, 2 a file could not be read or the usage is wrong.");
    parse(app, argc, argv);
    return show_or_follow(arguments, [&] {
        const report::ViewOptions view = make_view_options(arguments);
        return show_reports(arguments, "memlab-nn-modules", [&](const OpenReport& open) {
            const auto devices = report::nn_modules(open.report, open.resolver, view);
            return arguments.json ? report::render_nn_modules_json(open.file, devices)
                                  : report::render_nn_modules_text(open.report, devices, view);
        });
    });
}

int tree_command(int argc, char** argv) {
    TreeArguments arguments;
    CLI::App app("Shows the calls that led to GPU memory, and how much each branch took.",
                 "memlab-report tree");
    define(app, arguments);
    parse(app, argc, argv);
    if (const std::string problem = check_order(arguments); !problem.empty()) {
        return fail(problem);
    }
    const report::ViewOptions view = make_view_options(arguments);
    const report::TreeOptions tree{arguments.top_down, arguments.all_frames,
                                   arguments.least_percent / 100};
    return show_reports(arguments, "memlab-tree", [&](const OpenReport& open) {
        const auto trees =
            report::call_trees(open.report, open.resolver,
                               arguments.filter.sites(open.report, open.resolver), view, tree);
        return arguments.json ? report::render_tree_json(open.file, trees, view, tree)
                              : report::render_tree_text(trees, view, tree);
    });
}

}  // namespace memlab::tools
