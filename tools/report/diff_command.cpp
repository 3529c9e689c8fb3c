#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "report/runs/process_matching.hpp"
#include "report/runs/run_diff.hpp"
#include "report/symbols/symbolizer.hpp"
#include "report/views/diff.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_members.hpp"
#include "tools/report/view_options.hpp"

namespace memlab::tools {

namespace {

constexpr int exit_grew = 1;

struct DiffArguments : ReportOptions {
    std::string before;
    std::string after;
    std::string by = "stack";
    std::optional<std::uint64_t> rank;
    std::string process;
    bool markdown = false;
    bool csv = false;
    bool exit_code = false;

    bool one_pair() const { return rank || !process.empty(); }
};

void define(CLI::App& app, DiffArguments& arguments) {
    app.add_option("BEFORE", arguments.before,
                   "A report (memlab.*.json), an event log (*.memlog), or the folder of a run")
        ->required()
        ->type_name("");
    app.add_option("AFTER", arguments.after, "What to compare it with")->required()->type_name("");
    add_sort(app, arguments, report::order_names());
    app.add_option("--by", arguments.by,
                   "stack: each call stack by itself (default); place: any caller; nn-module: by "
                   "the names of PyTorch's nn.Modules that hold it")
        ->type_name("WHAT")
        ->check(one_of({"stack", "place", "nn-module"}));
    add_top(app, arguments, "Processes, call stacks and scopes", 20);
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_device(app, arguments);
    CLI::Option* rank = app.add_option("--rank", arguments.rank,
                                       "Compare only this rank of two "
                                       "folders")
                            ->type_name("N")
                            ->check(check_whole_number);
    app.add_option("--process", arguments.process,
                   "Compare only this process of two folders: its program or its process id")
        ->type_name("NAME|PID")
        ->check([](const std::string& text) {
            return text.empty() ? std::string("takes a name or a process id") : std::string();
        })
        ->excludes(rank);
    add_templates(app, arguments);
    add_json(app, arguments, "the comparison");
    CLI::Option* csv = app.add_flag("--csv", arguments.csv,
                                    "Print the call sites that changed as CSV, all of them");
    app.add_flag("--markdown", arguments.markdown,
                 "Print Markdown, for the comment of a pull request")
        ->excludes(csv);
    app.add_flag("--exit-code", arguments.exit_code, "Exit with 1 if a total grew");
    add_rendering(app, arguments);
    app.footer(
        "Call sites are matched by the functions and files of their stacks, not by lines, folders "
        "or addresses: code may have moved. Sorted by the size of the change. The processes of two "
        "folders are paired by rank, or by program and order of start; call sites and scopes are "
        "those of all pairs together.\n"
        "\n"
        "Examples:\n"
        "  memlab-report diff plain.json checkpointed.json    what it did to the peak\n"
        "  memlab-report diff --sort count old.json new.json  who allocates more often\n"
        "  memlab-report diff --by place --filter module=libtorch old.memlog new.memlog\n"
        "  memlab-report diff before/ after/                  two runs of many processes\n"
        "  memlab-report diff --rank 3 before/ after/         one rank of them\n"
        "  memlab-report diff --markdown base/ head/ >comment.md   for a pull request\n"
        "  memlab-report diff --json old.json new.json | jq .devices[].totals\n"
        "\n"
        "memlab-report check --baseline fails a build where memory grew by more than allowed.\n"
        "Exit code: 0 success, whatever changed; 1 with --exit-code if a total in bytes grew; 2 a "
        "file "
        "could not be read or the usage is wrong.");
}

bool used(const model::Report& report, std::uint64_t index) {
    for (const model::Device& device : report.devices) {
        if (device.index == index && device.used()) {
            return true;
        }
    }
    return false;
}

report::DiffOptions options_of(const DiffArguments& arguments) {
    report::DiffOptions options{make_view_options(arguments)};
    options.by_place = arguments.by == "place";
    options.by = arguments.by_nn_module ? report::SitesBy::nn_module : report::SitesBy::place;
    return options;
}

std::string not_used(std::uint64_t device) {
    return "GPU " + std::to_string(device) +
           " was used by neither; omit --device to see those that were";
}

/// `lacks` of either may be those of a report, too: only those of its run count.
int diff_two(const std::string& before_file, const model::Report& before,
             std::vector<report::Lack> before_lacks, const std::string& after_file,
             const model::Report& after, std::vector<report::Lack> after_lacks,
             const DiffArguments& arguments) {
    if (arguments.device && !used(before, *arguments.device) && !used(after, *arguments.device)) {
        return fail(not_used(*arguments.device));
    }
    const report::DiffOptions options = options_of(arguments);
    report::Symbolizer symbolizer;
    report::Symbolizer* symbols = arguments.no_symbols ? nullptr : &symbolizer;
    report::Resolver before_resolver(before, symbols, arguments.skips);
    report::Resolver after_resolver(after, symbols, arguments.skips);
    const report::DiffSide a{before_file, before, before_resolver,
                             arguments.filter.sites(before, before_resolver),
                             report::lacks_of_run(std::move(before_lacks))};
    const report::DiffSide b{after_file, after, after_resolver,
                             arguments.filter.sites(after, after_resolver),
                             report::lacks_of_run(std::move(after_lacks))};
    const report::Diff result = report::diff_reports(a, b, options);
    std::cout << (arguments.json       ? report::render_diff_json(a, b, result, options)
                  : arguments.csv      ? report::render_diff_csv(result)
                  : arguments.markdown ? report::render_diff_markdown(a, b, result, options)
                                       : report::render_diff_text(a, b, result, options));
    const bool any_grew =
        std::any_of(result.devices.begin(), result.devices.end(),
                    [](const report::DeviceDiff& device) { return report::grew(device.totals); });
    return flush_output(arguments.exit_code && any_grew ? exit_grew : EXIT_SUCCESS);
}

/// At least one of the two is a file.
int diff_files(const DiffArguments& arguments) {
    if (arguments.one_pair()) {
        return fail(std::string(arguments.rank ? "--rank" : "--process") +
                    " selects processes of two folders; omit it to compare files");
    }
    const std::string several_hint =
        "name the report of one of them, or compare it with the folder of another run";
    std::string problem;
    auto loaded = load_two_reports(arguments.before, arguments.after, &problem, several_hint);
    if (!loaded) {
        return fail(problem);
    }
    auto& [before, after] = *loaded;
    apply_options(before.report, arguments);
    apply_options(after.report, arguments);
    return diff_two(before.file, before.report, std::move(before.lacks), after.file, after.report,
                    std::move(after.lacks), arguments);
}

int diff_pair(const report::RunCollection& before, const report::RunCollection& after,
              const DiffArguments& arguments) {
    std::optional<report::ProcessPair> pair = report::ProcessPair{0, 0, std::nullopt, false};
    if (arguments.one_pair()) {
        const report::ProcessMatching matching = report::match_processes(before, after);
        std::string problem;
        pair =
            arguments.rank
                ? report::find_rank_pair(before, after, matching, *arguments.rank, &problem)
                : report::find_process_pair(before, after, matching, arguments.process, &problem);
        if (!pair) {
            return fail(problem);
        }
    }
    const report::RunMember& a = before.members.at(pair->before);
    const report::RunMember& b = after.members.at(pair->after);
    return diff_two(a.file, a.report, all_lacks(before), b.file, b.report, all_lacks(after),
                    arguments);
}

bool used_by_any(const report::RunCollection& run, std::uint64_t device) {
    return std::any_of(
        run.members.begin(), run.members.end(),
        [&](const report::RunMember& member) { return used(member.report, device); });
}

int diff_all(report::RunCollection before, report::RunCollection after,
             const DiffArguments& arguments) {
    if (arguments.device && !used_by_any(before, *arguments.device) &&
        !used_by_any(after, *arguments.device)) {
        return fail(not_used(*arguments.device));
    }
    const report::DiffOptions options = options_of(arguments);
    const report::RunView a = report::view_run(arguments.before, std::move(before));
    const report::RunView b = report::view_run(arguments.after, std::move(after));
    report::Symbolizer symbolizer;
    report::Symbolizer* symbols = arguments.no_symbols ? nullptr : &symbolizer;
    Resolvers resolvers_a(a.collection, symbols, arguments.skips);
    Resolvers resolvers_b(b.collection, symbols, arguments.skips);
    const auto side = [&](const report::RunView& view, Resolvers& resolvers) {
        return [&](std::size_t index) {
            const report::RunMember& member = view.collection.members.at(index);
            report::Resolver& resolver = resolvers(index);
            return report::DiffSide{member.file, member.report, resolver,
                                    arguments.filter.sites(member.report, resolver)};
        };
    };
    const report::RunDiff result =
        report::diff_runs({a, side(a, resolvers_a)}, {b, side(b, resolvers_b)}, options);
    std::cout << (arguments.json       ? report::render_run_diff_json(a, b, result, options)
                  : arguments.csv      ? report::render_changes_csv(result.sites)
                  : arguments.markdown ? report::render_changes_markdown(
                                             arguments.before, arguments.after, result.totals,
                                             result.sites, result.notes, options)
                                       : report::render_run_diff_text(a, b, result, options));
    return flush_output(arguments.exit_code && report::grew(result.totals) ? exit_grew
                                                                           : EXIT_SUCCESS);
}

/// Compares what can be read; the rest is reported on stderr and in the exit code.
int diff_folders(const DiffArguments& arguments) {
    report::RunCollection before = report::collect_run({arguments.before});
    report::RunCollection after = report::collect_run({arguments.after});
    if (arguments.tells_nn_modules_apart()) {
        separate_nn_modules(before);
        separate_nn_modules(after);
    }
    const int unread = std::max(report_errors(before), report_errors(after));
    for (const auto& [folder, run] :
         {std::tie(arguments.before, before), std::tie(arguments.after, after)}) {
        if (run.members.empty()) {
            // An empty folder was reported already; this one has only the run's description.
            return run.errors.empty()
                       ? fail(folder + ": holds no report and no event log of memlab")
                       : exit_bad_input;
        }
    }
    const bool two = before.members.size() == 1 && after.members.size() == 1;
    const int code = two || arguments.one_pair()
                         ? diff_pair(before, after, arguments)
                         : diff_all(std::move(before), std::move(after), arguments);
    return std::max(unread, code);
}

int diff(const DiffArguments& arguments) {
    return report::is_folder(arguments.before) && report::is_folder(arguments.after)
               ? diff_folders(arguments)
               : diff_files(arguments);
}

}  // namespace

int diff_command(int argc, char** argv) {
    DiffArguments arguments;
    CLI::App app(
        "Compares two recordings of a program, or two runs of several processes: in total, by "
        "process, by call site, by scope; what grew, what shrank, what is new.",
        "memlab-report diff");
    define(app, arguments);
    parse(app, argc, argv);
    arguments.by_nn_module = arguments.by == "nn-module";
    if (const std::string problem = check_order(arguments); !problem.empty()) {
        return fail(problem);
    }
    try {
        return diff(arguments);
    } catch (const std::bad_alloc&) {
        return fail("the comparison needs more memory than there is; do it on a larger machine");
    }
}

}  // namespace memlab::tools
