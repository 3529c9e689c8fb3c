#include "tools/report/run_command.hpp"

#include <CLI/CLI.hpp>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "report/inefficiencies/reserve_findings.hpp"
#include "report/output_file.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/found_steps.hpp"
#include "report/runs/render.hpp"
#include "report/runs/trend.hpp"
#include "report/symbols/symbolizer.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/recorded_pool.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_members.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

/// `follows`: what needs the whole log again is left out.
void print_largest(const RunView& view, Resolvers& resolvers, const TextOptions& options,
                   bool follows) {
    const RunMember& member = view.collection.members.at(view.largest);
    Resolver& resolver = resolvers(view.largest);
    model::Report report = resolvers.report(view.largest);
    if (!follows) {
        add_found_steps(report, find_event_log(member.file, report));
    }
    Summary summary = summarize(member.file, report, resolver);
    if (!follows) {
        try_settings_on_reserve(find_event_log(member.file, report), pool_settings_of, summary);
    }
    if (view.collection.members.size() > 1) {
        std::cout << "\n"
                  << options.style.dim()
                  << "==> the process with the largest peak <==" << options.style.reset() << "\n";
    } else {
        std::cout << "\n";
    }
    std::cout << render_text(summary, resolver, options);
}

struct MergeArguments {
    std::vector<std::string> inputs;
    std::string output;
    StyleOptions style;
    bool json = false;
    bool no_symbols = false;
    std::size_t top = 10;
    std::string by = "place";
    std::optional<Level> level;
    report::FrameSkips skips;
};

void define(CLI::App& app, MergeArguments& arguments) {
    app.add_option("RANKS", arguments.inputs,
                   "Folders (memlab-run -o FOLDER/), reports or event logs")
        ->required()
        ->type_name("");
    app.add_option("-o,--output", arguments.output, "Also write the comparison as JSON to FILE")
        ->type_name("FILE");
    app.add_flag("--json", arguments.json, "Print the comparison as JSON");
    app.add_option("--by", arguments.by,
                   "place: where ranks differ (default); nn-module: what each of PyTorch's "
                   "nn.Modules held at the peak of each rank")
        ->type_name("WHAT")
        ->check(one_of({"place", "nn-module"}));
    app.add_option("--top", arguments.top, "Rows of that table (default 10)")
        ->type_name("N")
        ->check(check_positive);
    add_level(app,
              "driver: what CUDA handed out; framework: what PyTorch's cache handed out (default "
              "where each rank has one)",
              false, [&arguments](Level level) { arguments.level = level; });
    add_skip(app, arguments.skips);
    add_style_options(app, arguments.style);
    add_symbols(app, arguments.no_symbols, "Look up no symbols; compare module+offset");
    app.footer(
        "Examples:\n"
        "  memlab-report merge run/                          the ranks of one run\n"
        "  memlab-report merge host1/ host2/ -o ranks.json   of several hosts\n"
        "  memlab-report merge --by nn-module run/           nn.Modules side by side\n"
        "\n"
        "Exit code: 0 success, 2 a file could not be read, there is no rank, or the usage is "
        "wrong.");
}

int merge(const MergeArguments& arguments) {
    const RunView view =
        view_run(arguments.inputs.front(), collect_run(arguments.inputs, Keep::totals_and_stacks));
    Symbolizer symbolizer;
    Resolvers resolvers(view.collection, arguments.no_symbols ? nullptr : &symbolizer,
                        arguments.skips);
    const RankComparison ranks = compare_ranks(
        view.collection, [&](std::size_t member) -> Resolver& { return resolvers(member); },
        arguments.level);
    if (ranks.ranks.empty() && !view.collection.members.empty()) {
        return fail(
            "none of these recordings has a rank (RANK, OMPI_COMM_WORLD_RANK, PMI_RANK, "
            "SLURM_PROCID, ...); memlab-report FOLDER shows the processes as a tree");
    }
    const std::string json = render_ranks_json(view, ranks);
    if (!arguments.output.empty()) {
        const std::string problem = report::write_output(arguments.output, json);
        if (!problem.empty()) {
            return fail(problem);
        }
    }
    if (arguments.json) {
        std::cout << json;
    } else if (!ranks.ranks.empty()) {
        std::cout << render_ranks_text(view, ranks,
                                       {make_style(arguments.style), arguments.top,
                                        arguments.by == "nn-module", working_directory()});
    }
    return flush_output(report_errors(view.collection));
}

struct TrendArguments {
    std::vector<std::string> runs;
    StyleOptions style;
    bool json = false;
    std::optional<Level> level;
};

void define(CLI::App& app, TrendArguments& arguments) {
    app.add_option("RUNS", arguments.runs,
                   "Reports, event logs or folders of runs: a row for each, ordered by start")
        ->required()
        ->type_name("");
    add_level(app,
              "driver: what CUDA handed out; framework: what PyTorch's cache handed out (default "
              "where each process has one)",
              false, [&arguments](Level level) { arguments.level = level; });
    app.add_flag("--json", arguments.json, "Print the rows as JSON");
    add_style_options(app, arguments.style);
    app.footer(
        "A folder of several processes is shown by the one with the largest peak.\n"
        "\n"
        "Examples:\n"
        "  memlab-report trend nightly/*/                  a row for each night's run\n"
        "  memlab-report trend --json nightly/*/ | jq '.runs[].allocated_peak_bytes'\n"
        "\n"
        "memlab-report check --baseline fails a build where memory grew by more than allowed.\n"
        "Exit code: 0 success, whatever changed; 2 a file could not be read or the usage is "
        "wrong.");
}

}  // namespace

int show_run(const std::string& folder, const RunShowOptions& options) {
    return with_memory_for(folder, [&] {
        const RunView view = view_run(folder, collect_run({folder}, Keep::totals, options.reader));
        if (options.json) {
            std::cout << render_run_json(view);
        } else if (!view.collection.members.empty()) {
            Symbolizer symbolizer;
            Resolvers resolvers(view.collection, options.symbols ? &symbolizer : nullptr,
                                options.skips, options.reader);
            std::cout << render_run_text(view, options.text.style);
            print_largest(view, resolvers, options.text, options.reader != nullptr);
        }
        return flush_output(report_errors(view.collection));
    });
}

int merge_command(int argc, char** argv) {
    MergeArguments arguments;
    CLI::App app(
        "Compares the ranks of a job (torchrun, mpirun, srun): what each needed, how uneven they "
        "are, which rank peaks, and which code makes the difference.",
        "memlab-report merge");
    define(app, arguments);
    parse(app, argc, argv);
    return with_memory_for(arguments.inputs.front(), [&] { return merge(arguments); });
}

int trend_command(int argc, char** argv) {
    TrendArguments arguments;
    CLI::App app("Shows how the memory of a program changed over many runs.",
                 "memlab-report trend");
    define(app, arguments);
    parse(app, argc, argv);
    return with_memory_for(
        arguments.runs.front(),
        [&] {
            const Trend trend = make_trend(arguments.runs, arguments.level);
            if (arguments.json) {
                std::cout << render_trend_json(trend);
            } else if (!trend.runs.empty()) {
                std::cout << render_trend_text(trend, make_style(arguments.style));
            }
            return flush_output(report_errors(trend.errors));
        },
        "read the runs");
}

}  // namespace memlab::tools
