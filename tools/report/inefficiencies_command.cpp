#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <string>
#include <vector>

#include "report/inefficiencies/inefficiencies.hpp"
#include "report/inefficiencies/render.hpp"
#include "report/reading/find_event_log.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

struct InefficienciesArguments : ReportOptions {
    std::vector<std::string> patterns;
    std::vector<std::string> suppressions;
    std::string step;
    bool no_defaults = false;
};

/// A check for CLI11.
std::string problem_of_pattern(const std::string& name) {
    std::string all;
    for (const std::string& known : pattern_names()) {
        if (name == known) {
            return {};
        }
        all += (all.empty() ? "" : ", ") + known;
    }
    return "takes one of " + all + "; not " + name;
}

void define(CLI::App& app, InefficienciesArguments& arguments) {
    add_files(app, arguments);
    add_repeated(app, "--pattern", arguments.patterns,
                 "Look only for this, see below; may be repeated")
        ->type_name("NAME")
        ->check([](const std::string& name) { return problem_of_pattern(name); });
    app.add_option("--step", arguments.step,
                   "The mark or scope that ends a step, by its path or own name (default: the "
                   "outermost one that ends most often)")
        ->type_name("NAME");
    add_repeated(app, "--suppressions", arguments.suppressions,
                 "Suppressed leaks, as for memlab-report leaks; may be repeated")
        ->type_name("FILE");
    app.add_flag("--no-default-suppressions", arguments.no_defaults,
                 "Include what cuBLAS, cuDNN, NCCL and PyTorch keep with their handles");
    add_top(app, arguments, "Findings of each GPU");
    add_filter(app, arguments);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    add_templates(app, arguments);
    add_json(app, arguments, "all findings");
    add_rendering(app, arguments);
    app.footer(
        "Patterns that save memory:\n"
        "  leak                  never freed: it grows at every step, or others of the\n"
        "                        same place never lived half as long\n"
        "  late_deallocation     freed only after its replacement was allocated\n"
        "  over_long_life        freed in a later step than the one that made it\n"
        "  unused_reserve        twice as much reserved as was ever allocated, or kept by\n"
        "                        a few blocks, and the setting that reserves less\n"
        "  fragmentation_source  small blocks that keep segments with much free memory\n"
        "  late_reuse            freed, but not yet reusable when the pool grew\n"
        "  oversized_alignment   rounding takes 1 % of the peak or more\n"
        "  unused_allocation     the GPU did nothing while it lived (needs\n"
        "                        MEMLAB_KERNELS=on)\n"
        "Patterns that save calls:\n"
        "  redundant_allocation  a few buffers would serve all allocations of the place\n"
        "  temporary_churn       the same, where most are freed before anything else is\n"
        "                        allocated\n"
        "\n"
        "\"saves 3 MiB\": the new peak of allocated memory would be that much lower; \"up to\": an "
        "upper bound. Savings of reserved memory come from a replay. Findings below 1 % of the "
        "GPU's peak are left out. Savings do not add up. certain: follows from the recording. "
        "likely: rarely intended. possible: may be intended.\n"
        "\n"
        "Examples:\n"
        "  memlab-report inefficiencies memlab.train.4711.memlog\n"
        "  memlab-report inefficiencies --step step --top 3 memlab.train.4711.json\n"
        "  memlab-report inefficiencies --pattern late_deallocation --json run/\n"
        "\n"
        "It needs the event log, which is found in the report's folder.\n"
        "Exit code: 0 success, whatever was found; 2 a file could not be read or the usage is "
        "wrong.");
}

std::vector<Pattern> patterns_of(const std::vector<std::string>& names) {
    std::vector<Pattern> patterns;
    patterns.reserve(names.size());
    for (const std::string& name : names) {
        const auto at = std::find(pattern_names().begin(), pattern_names().end(), name);
        patterns.push_back(static_cast<Pattern>(at - pattern_names().begin()));
    }
    return patterns;
}

}  // namespace

int inefficiencies_command(int argc, char** argv) {
    InefficienciesArguments arguments;
    CLI::App app(
        "Shows where a program wastes memory or allocates more often than needed: what was "
        "found, what it costs and what to change.",
        "memlab-report inefficiencies");
    define(app, arguments);
    parse(app, argc, argv);
    const SuppressionList suppressions =
        read_suppressions(arguments.suppressions, !arguments.no_defaults);
    if (!suppressions.problem.empty()) {
        return fail(suppressions.problem);
    }
    InefficiencyQuery query;
    query.device = arguments.device;
    query.patterns = patterns_of(arguments.patterns);
    query.step = arguments.step;
    query.suppressions = &suppressions.list;
    query.pool_settings = pool_settings_of;
    query.patterns_of_all_sites = arguments.filter.empty();
    const ViewOptions view = make_view_options(arguments);
    arguments.find_steps = true;
    return show_reports(arguments, "memlab-inefficiencies", [&](const OpenReport& open) {
        query.taken = arguments.filter.sites(open.report, open.resolver);
        std::string problem;
        const Inefficiencies found = find_inefficiencies(
            open.report, open.resolver, look_for_log(open.file, open.report), query, &problem);
        if (!problem.empty()) {
            throw CannotShow{problem};
        }
        return arguments.json ? inefficiencies_json(open.report, open.resolver, found, view)
                              : render_inefficiencies(found, view);
    });
}

}  // namespace memlab::tools
