#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "own_version.hpp"
#include "report/check/budget.hpp"
#include "report/check/check.hpp"
#include "report/check/render.hpp"
#include "report/levels.hpp"
#include "report/output_file.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/reading/found_steps.hpp"
#include "report/runs/collection.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report::check;

struct CheckArguments : ReportOptions {
    std::map<Metric, std::vector<std::string>> limits;
    std::vector<std::string> partial_limits;
    std::optional<std::string> nn_module;
    std::vector<std::string> budgets;
    std::vector<std::string> suppressions;
    bool no_default_suppressions = false;
    std::string baseline;
    std::set<report::Lack::Kind> allowed;
    bool update = false;
    std::string missing_baseline = "fail";
    std::string markdown;
    std::string junit;
    std::string sarif;
    bool annotations = false;
};

std::string option_name(const MetricInfo& metric) {
    std::string name = "--" + std::string(metric.name);
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

std::string names_of_lacks() {
    std::string names;
    for (const report::LackInfo& each : report::lack_infos) {
        names.append(names.empty() ? "" : ", ").append(each.name);
    }
    return names;
}

void allow(const std::string& name, std::set<report::Lack::Kind>& allowed) {
    for (const report::LackInfo& each : report::lack_infos) {
        if (each.name == name) {
            allowed.insert(each.kind);
            return;
        }
    }
    throw CLI::ValidationError("--allow", "takes one of " + names_of_lacks() + ", not " + name);
}

void define(CLI::App& app, CheckArguments& arguments) {
    add_required_files(app, arguments);
    add_device(app, arguments);
    add_skip(app, arguments.skips);
    add_rendering(app, arguments);
    for (const MetricInfo& metric : metrics()) {
        add_repeated(app, option_name(metric), arguments.limits[metric.metric],
                     std::string(metric.what))
            ->type_name("LIMIT")
            ->group("Limits");
    }
    add_repeated(app, "--limit", arguments.partial_limits,
                 "A limit, METRIC=LIMIT, or one of call stacks (TEXT as in --filter of the other "
                 "commands), scopes, a kind of memory or nn.Modules: METRIC@site:TEXT=LIMIT, "
                 "METRIC@scope:NAME=LIMIT, METRIC@kind:NAME=LIMIT, METRIC@nn_module:NAME=LIMIT")
        ->type_name("WHAT")
        ->group("Limits");
    app.add_option("--nn-module", arguments.nn_module,
                   "Apply limits given as options to what this nn.Module, or one inside it, held: "
                   "a name or a pattern ('encoder.*'), with or without the model's name")
        ->type_name("NAME")
        ->group("Limits");
    add_repeated(app, "--budget", arguments.budgets, "Limits from a TOML or JSON file (docs/ci.md)")
        ->type_name("FILE")
        ->group("Limits");
    add_repeated(app, "--suppressions", arguments.suppressions,
                 "What may stay allocated at the end, and grow (memlab-report leaks)")
        ->type_name("FILE")
        ->group("Limits");
    app.add_flag("--no-default-suppressions", arguments.no_default_suppressions,
                 "Count what cuBLAS, cuDNN, NCCL and PyTorch keep with their handles as leaks")
        ->group("Limits");
    app.add_option(
           "--baseline", arguments.baseline,
           "What limits like +5% are relative to: a file or folder that --update wrote, or a "
           "report")
        ->type_name("PATH")
        ->group("Baseline");
    add_repeated(
        app, "--allow",
        [&arguments](const std::vector<std::string>& names) {
            for (const std::string& name : names) {
                allow(name, arguments.allowed);
            }
        },
        "Accept recordings that lack NAME, and judge what they have: " + names_of_lacks())
        ->type_name("NAME")
        ->group("Limits");
    app.add_flag_callback(
           "--allow-unfinished",
           [&arguments] {
               arguments.allowed.insert(unfinished_kinds().begin(), unfinished_kinds().end());
           },
           "The same as --allow for running, cut-off and stopped")
        ->group("Limits");
    app.add_flag("--update", arguments.update, "Record this run in the baseline, unless it fails")
        ->group("Baseline");
    app.add_option("--missing-baseline", arguments.missing_baseline,
                   "If there is none for this GPU and driver: fail (default; exit code 2) or "
                   "pass")
        ->type_name("WHAT")
        ->check(one_of({"pass", "fail"}))
        ->group("Baseline");
    add_json(app, arguments, "the outcome");
    add_top(app, arguments, "Places shown for an exceeded limit", 3);
    app.add_option("--markdown", arguments.markdown,
                   "Also append the outcome to FILE as Markdown ($GITHUB_STEP_SUMMARY)")
        ->type_name("FILE")
        ->group("Output");
    app.add_option("--junit", arguments.junit, "Also write the outcome to FILE as JUnit XML")
        ->type_name("FILE")
        ->group("Output");
    app.add_option("--sarif", arguments.sarif, "Also write the outcome to FILE as SARIF 2.1.0")
        ->type_name("FILE")
        ->group("Output");
    app.add_flag("--annotations", arguments.annotations,
                 "Also print annotations for GitHub Actions")
        ->group("Output");
    app.footer(
        "A LIMIT is the most that is allowed: 4GiB, 1048576, 100, 20%; or so much above the "
        "baseline: +5%, +64MiB. A value equal to its limit is accepted. A kind of memory may have "
        "one of its own: --leaks 0 --leaks pinned=64MiB.\n"
        "\n"
        "Examples:\n"
        "  memlab-report check --peak-allocated 4GiB --leaks 0 memlab.train.*.json\n"
        "  memlab-report check --nn-module 'encoder.*' --peak-allocated 1GiB run/\n"
        "  memlab-report check --budget memlab.toml run/\n"
        "  memlab-report check --baseline ci/memory/ --update memlab.train.*.json\n"
        "  memlab-report check --baseline ci/memory/ --peak-allocated +2% memlab.*.json\n"
        "\n"
        "Exit code: 0 every limit is kept, 1 one is exceeded, 2 unknown (a file could "
        "not be read, a recording has no end, a figure is not in it, there is no baseline) or the "
        "usage is wrong.");
}

/// Parses "leaks@site:load_batch=0" or, of the whole, "contexts=1"; false on errors, which
/// `problem` explains.
bool read_partial(const std::string& text, Limit* limit, std::string* problem) {
    const std::size_t at = text.find('@');
    const std::size_t equals = text.rfind('=');
    const MetricInfo* const whole =
        at == std::string::npos ? find_metric(text.substr(0, equals)) : nullptr;
    if (whole != nullptr && equals != std::string::npos) {
        const auto bound = parse_bound(text.substr(equals + 1), whole->unit, problem);
        if (!bound) {
            problem->insert(0, "--limit " + std::string(whole->name) + " ");
            return false;
        }
        *limit = {whole->metric, {}, *bound, "--limit"};
        return true;
    }
    const std::size_t colon = text.find(':', at == std::string::npos ? 0 : at);
    if (at == std::string::npos || equals == std::string::npos || colon == std::string::npos ||
        colon > equals) {
        *problem =
            "--limit takes METRIC=LIMIT, METRIC@site:TEXT=LIMIT, METRIC@scope:NAME=LIMIT, "
            "METRIC@kind:NAME=LIMIT or METRIC@nn_module:NAME=LIMIT, not " +
            text;
        return false;
    }
    const std::string name = text.substr(0, at);
    const std::string kind = text.substr(at + 1, colon - at - 1);
    const MetricInfo* metric = find_metric(name);
    const auto kinds = {Subject::Kind::site, Subject::Kind::scope, Subject::Kind::kind,
                        Subject::Kind::nn_module};
    const auto* const found = std::find_if(
        kinds.begin(), kinds.end(), [&](Subject::Kind each) { return keyword(each) == kind; });
    if (metric == nullptr || found == kinds.end()) {
        *problem = "--limit " + text + ": there is no " +
                   (metric == nullptr ? "metric " + name
                                      : kind + ", only site, scope, kind and nn_module") +
                   "; memlab-report check --help shows what there is";
        return false;
    }
    limit->metric = metric->metric;
    limit->subject.kind = *found;
    limit->subject.text = text.substr(colon + 1, equals - colon - 1);
    limit->origin = "--limit";
    if (limit->subject.text.empty() || !measures(*metric, limit->subject.kind)) {
        *problem = "--limit " + text + ": " +
                   (limit->subject.text.empty() ? "says no " + kind
                                                : name + " is not measured by " + kind) +
                   "; memlab-report check --help shows the usage";
        return false;
    }
    if (const std::string wrong = subject_problem(limit->subject); !wrong.empty()) {
        *problem = "--limit " + kind + " " + wrong;
        return false;
    }
    const auto bound = parse_bound(text.substr(equals + 1), metric->unit, problem);
    if (!bound) {
        problem->insert(0, "--limit " + name + " ");
        return false;
    }
    limit->bound = *bound;
    return true;
}

class Check {
  public:
    explicit Check(const CheckArguments& arguments) : arguments_(arguments) {}

    int run() {
        if (const int code = gather(); code != 0) {
            return code;
        }
        const bool judges_growth =
            std::any_of(limits_.begin(), limits_.end(),
                        [](const Limit& limit) { return limit.metric == Metric::growth; });
        report::RunCollection run = report::collect_run(
            arguments_.files, judges_growth ? report::Keep::found_steps : report::Keep::everything);
        separate_nn_modules(run);
        for (report::RunMember& member : run.members) {
            if (arguments_.level == report::Level::driver) {
                report::choose_level(member.report, report::Level::driver);
            } else {
                report::choose_ooms(member.report, arguments_.level);
            }
            if (judges_growth) {
                report::add_found_steps(member.report,
                                        report::find_event_log(member.file, member.report));
            }
        }
        report::Symbolizer symbolizer;
        process_options_.symbolizer = arguments_.no_symbols ? nullptr : &symbolizer;
        process_options_.device = arguments_.device;
        process_options_.skips = arguments_.skips;
        process_options_.frameworks = arguments_.level == report::Level::framework;
        const std::vector<Process> processes = prepare_processes(run, process_options_);
        Options options;
        options.update = arguments_.update;
        options.lacks = run.lacks;
        const report::Level level = arguments_.level;
        options.ranks = report::ranks_of(
            run, level == report::Level::all ? std::nullopt : std::optional(level));
        options.allowed_lacks = arguments_.allowed;
        options.missing_baseline_passes = arguments_.missing_baseline == "pass";
        options.baseline_name = baseline_path_;
        Baseline baseline;
        if (!baseline_path_.empty()) {
            if (const std::string problem = load_baseline(&baseline); !problem.empty()) {
                return fail(problem);
            }
            options.baseline = &baseline;
        }
        outcome_ = report::check::check(processes, limits_, options);
        if (processes.empty() && !run.errors.empty()) {
            outcome_.problems.clear();  // the errors explain the missing result
        }
        for (const auto& [file, error] : run.errors) {
            outcome_.problems.insert(outcome_.problems.begin(),
                                     std::string(file).append(": ").append(error));
        }
        if (arguments_.update) {
            update(processes);
        }
        return show({processes, outcome_, working_directory(), own_version, run.lacks});
    }

  private:
    void separate_nn_modules(report::RunCollection& run) const {
        if (std::any_of(limits_.begin(), limits_.end(), [](const Limit& limit) {
                return limit.subject.kind == Subject::Kind::nn_module;
            })) {
            report::separate_nn_modules(run);
        }
    }

    /// The limit of an option; empty, or what is wrong with it.
    std::string read_option(Metric metric, const std::string& text, Limit* limit) const {
        std::string_view amount = text;
        Subject subject = info(metric).of_kinds ? take_kind(&amount) : Subject();
        if (arguments_.nn_module) {
            if (!measures(info(metric), Subject::Kind::nn_module) ||
                subject.kind != Subject::Kind::all) {
                return "is not known by nn.Module; leave it or --nn-module out";
            }
            subject = {Subject::Kind::nn_module, *arguments_.nn_module};
        }
        std::string problem = subject_problem(subject);
        const auto bound =
            problem.empty() ? parse_bound(amount, info(metric).unit, &problem) : std::nullopt;
        if (bound) {
            *limit = {metric, subject, *bound, option_name(info(metric))};
        }
        return problem;
    }

    /// Reads all limits and the baseline; returns the exit code on usage errors.
    int gather() {
        baseline_path_ = arguments_.baseline;
        std::vector<std::string> files = arguments_.suppressions;
        for (const std::string& file : arguments_.budgets) {
            BudgetResult read = read_budget(file);
            if (!read.budget) {
                return fail(read.error);
            }
            limits_.insert(limits_.end(), read.budget->limits.begin(), read.budget->limits.end());
            baseline_path_ = baseline_path_.empty() ? read.budget->baseline : baseline_path_;
            if (!read.budget->suppressions.empty()) {
                files.push_back(read.budget->suppressions);
            }
        }
        report::SuppressionList suppressions =
            report::read_suppressions(files, !arguments_.no_default_suppressions);
        if (!suppressions.problem.empty()) {
            return fail(suppressions.problem);
        }
        process_options_.suppressions = std::move(suppressions.list);
        bool any_option = false;
        for (const auto& [metric, texts] : arguments_.limits) {
            for (const std::string& text : texts) {
                Limit limit;
                if (const std::string problem = read_option(metric, text, &limit);
                    !problem.empty()) {
                    return fail(option_name(info(metric)) + " " + problem);
                }
                limits_.push_back(std::move(limit));
                any_option = true;
            }
        }
        if (arguments_.nn_module && !any_option) {
            return fail("--nn-module is of limits that are options; give --peak-allocated 4GiB");
        }
        for (const std::string& text : arguments_.partial_limits) {
            Limit limit;
            std::string problem;
            if (!read_partial(text, &limit, &problem)) {
                return fail(problem);
            }
            limits_.push_back(std::move(limit));
        }
        const bool relative = std::any_of(limits_.begin(), limits_.end(), [](const Limit& limit) {
            return limit.bound.relative();
        });
        if (baseline_path_.empty() && (relative || arguments_.update)) {
            return fail(relative
                            ? "a limit above the baseline (+...) needs a baseline; name it with "
                              "--baseline PATH"
                            : "--update needs to know where; name the baseline with "
                              "--baseline PATH");
        }
        if (!baseline_path_.empty() && !relative) {
            limits_.push_back({Metric::peak_allocated,
                               Subject(),
                               {Bound::Kind::above_baseline, Figure()},
                               "--baseline"});
        }
        if (limits_.empty()) {
            return fail(
                "there is nothing to check; give a limit (--peak-allocated 4GiB), a --budget or a "
                "--baseline");
        }
        return 0;
    }

    std::string load_baseline(Baseline* baseline) {
        BaselineResult read = read_baseline(baseline_path_);
        if (!read.error.empty()) {
            return read.error;
        }
        if (read.baseline || !read.exists) {
            *baseline = read.baseline.value_or(Baseline());
            return {};
        }
        if (arguments_.update) {
            return baseline_path_ +
                   ": holds something else than a baseline and will not be written over; name "
                   "another path with --baseline";
        }
        report::RunCollection run = report::collect_run({baseline_path_});
        separate_nn_modules(run);
        if (!run.errors.empty()) {
            return run.errors.front().first + ": as a baseline " + run.errors.front().second;
        }
        const std::vector<Process> processes = prepare_processes(run, process_options_);
        if (const std::string problem = baseline_problem(processes, run.lacks, arguments_.allowed);
            !problem.empty()) {
            return (problem.starts_with("as a baseline") ? baseline_path_ + ": " : "") + problem;
        }
        *baseline = Baseline(baseline_figures(processes, limits_));
        return {};
    }

    void update(const std::vector<Process>& processes) {
        if (outcome_.exit_code() != 0) {
            outcome_.notes.push_back(baseline_path_ +
                                     " is as it was: a run that fails is not recorded.");
            return;
        }
        const std::vector<BaselineFigure> figures = baseline_figures(processes, limits_);
        const std::string problem = figures.empty() ? "there is nothing to record"
                                                    : update_baseline(baseline_path_, figures);
        if (!problem.empty()) {
            outcome_.problems.push_back(problem);
            return;
        }
        const Baseline recorded(figures);
        std::vector<BaselineKey> keys;
        for (const BaselineFigure& each : figures) {
            if (std::find(keys.begin(), keys.end(), each.key) == keys.end()) {
                keys.push_back(each.key);
                outcome_.notes.push_back(baseline_path_ + ": recorded for " + key_text(each.key) +
                                         ".");
            }
        }
    }

    int show(const View& view) {
        std::vector<std::string> failures;
        const auto keep = [&](const std::string& problem) {
            if (!problem.empty()) {
                failures.push_back(problem);
            }
        };
        if (!arguments_.junit.empty()) {
            keep(report::write_output(arguments_.junit, render_junit(view)));
        }
        if (!arguments_.sarif.empty()) {
            keep(report::write_output(arguments_.sarif, render_sarif(view)));
        }
        if (!arguments_.markdown.empty()) {
            keep(report::append_output(arguments_.markdown, render_markdown(view)));
        }
        if (arguments_.json) {
            std::cout << render_json(view);
        } else {
            const report::Style style = make_style(arguments_.style);
            std::cout << render_text(view, style, arguments_.top);
            for (const std::string& note : outcome_.notes) {
                std::cout << report::printable(note, style.ascii) << "\n";
            }
        }
        if (arguments_.annotations) {
            // GitHub reads workflow commands from both streams; stdout must be pure JSON.
            (arguments_.json ? std::cerr : std::cout) << render_annotations(view);
        }
        for (const auto* list : {&outcome_.problems, &failures}) {
            for (const std::string& problem : *list) {
                fail(problem);
            }
        }
        const int code = outcome_.exit_code();
        return flush_output(code == 0 && !failures.empty() ? exit_bad_input : code);
    }

    const CheckArguments& arguments_;
    std::vector<Limit> limits_;
    ProcessOptions process_options_;
    std::string baseline_path_;
    Outcome outcome_;
};

}  // namespace

int check_command(int argc, char** argv) {
    CheckArguments arguments;
    CLI::App app(
        "Compares the GPU memory that programs needed with limits, for CI: the allocated peak, "
        "leaks, growth per step and more; absolute limits, or relative to a baseline.",
        "memlab-report check");
    define(app, arguments);
    parse(app, argc, argv);
    return with_memory_for(
        arguments.files.front(), [&] { return Check(arguments).run(); }, "check it");
}

}  // namespace memlab::tools
