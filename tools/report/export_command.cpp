#include "tools/report/commands.hpp"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/exports/formats.hpp"
#include "report/exports/stacks.hpp"
#include "report/levels.hpp"
#include "report/reading/find_event_log.hpp"
#include "report/timeline/moments.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/export_file.hpp"
#include "tools/report/export_recordings.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_members.hpp"

namespace memlab::tools {

namespace {

using report::exports::Format;

std::string format_list() {
    std::string text = "Formats:\n";
    for (const Format& format : report::exports::formats) {
        text.append("  ").append(format.name).append(14 - format.name.size(), ' ');
        text.append(format.what).append(format.needs_log ? " (from an event log)" : "");
        text.append("\n");
    }
    return text;
}

const Format* find_format(std::string_view name) {
    const auto* const found =
        std::find_if(report::exports::formats.begin(), report::exports::formats.end(),
                     [name](const Format& format) { return format.name == name; });
    return found == report::exports::formats.end() ? nullptr : found;
}

std::string known_format(const std::string& name) {
    if (find_format(name) != nullptr) {
        return "";
    }
    std::string list;
    for (const Format& format : report::exports::formats) {
        list.append(list.empty() ? "" : ", ").append(format.name);
    }
    return "takes one of " + list + ", not " + name;
}

std::vector<std::string> names_of_weights() {
    std::vector<std::string> names;
    for (const report::exports::WeightInfo& each : report::exports::weight_infos) {
        names.emplace_back(each.name);
    }
    return names;
}

void define(CLI::App& app, ExportArguments& arguments) {
    app.add_option("FILE", arguments.files,
                   "A report (memlab.*.json) or an event log (*.memlog), or the folder of a run; "
                   "for folded also BEFORE AFTER, for perfetto and openmetrics any number of "
                   "processes; default: the newest recording of this folder")
        ->type_name("");
    default_to_newest(app, arguments.files);
    app.add_option("--to", arguments.format, "The format: one of those below")
        ->required()
        ->type_name("FORMAT")
        ->check(known_format);
    app.add_option("-o,--output", arguments.output,
                   "The file to write (default: standard output); it is replaced only when "
                   "complete, and compressed if its name ends in .gz")
        ->type_name("FILE");
    app.add_option(
           "--by", arguments.by,
           "The weight of a stack (folded, pprof, speedscope): peak (default), bytes or count "
           "of all allocations, or live: bytes never freed")
        ->type_name("WHAT")
        ->check(one_of(names_of_weights()));
    app.add_option(
           "--at", arguments.at,
           "What was live then (folded, pprof, speedscope): 1.5s, 200ms, 3us, peak, end, or "
           "a mark's name")
        ->type_name("MOMENT");
    app.add_option("--from", arguments.from,
                   "Start there (csv, perfetto, pytorch); for folded: compare what was live then "
                   "with what was held at --until")
        ->type_name("MOMENT");
    app.add_option("--until", arguments.until, "End there (default: the end)")->type_name("MOMENT");
    add_device(app, arguments);
    add_filter(app, arguments, true);
    add_skip(app, arguments.skips);
    add_symbols(app, arguments.no_symbols);
    app.footer(format_list() +
               "\n"
               "Examples:\n"
               "  memlab-report export --to folded memlab.train.4711.json > peak.txt\n"
               "  memlab-report export --to folded --at 1.5s train.memlog > then.txt\n"
               "  memlab-report export --to folded before.json after.json > change.txt\n"
               "  memlab-report export --to speedscope -o peak.json memlab.train.4711.json\n"
               "  memlab-report export --to perfetto -o trace.pftrace memlab.train.4711.memlog\n"
               "  memlab-report export --to perfetto -o run.pftrace run/   all ranks of a run\n"
               "  memlab-report export --to pprof -o live.pb.gz --by live memlab.train.4711.json\n"
               "  memlab-report export --to openmetrics -o run.prom run/   all ranks of a run\n"
               "\n"
               "memlab-report html has flame graphs of any moment, range and comparison.\n"
               "docs/exports.md describes each format and the programs that read it.\n"
               "Exit code: 0 success, 2 bad input or usage; then nothing is written.");
}

int export_metrics_of_run(const ExportArguments& arguments, report::RunCollection run) {
    const std::vector<report::Lack> of_run = all_lacks(run);
    std::vector<report::exports::MetricsProcess> processes;
    for (report::RunMember& member : run.members) {
        report::choose_level(member.report, arguments.level);
        processes.push_back({&member.report, member.lacks});
        processes.back().lacks.insert(processes.back().lacks.end(), of_run.begin(), of_run.end());
    }
    ExportOutput output(arguments.output, true);
    if (!output.problem().empty()) {
        return fail(output.problem());
    }
    const report::exports::Result result =
        report::exports::write_openmetrics_of_run(processes, arguments.device, output.sink());
    if (!result.written || !output.finish()) {
        return fail(output.problem());
    }
    return report_errors(run);
}

/// Several processes; nothing if it is one, or none can be read.
std::optional<int> export_run(const ExportArguments& arguments, const Format& format) {
    std::vector<std::string> paths;
    for (const std::string& file : arguments.files) {
        paths.push_back(meant_by(file));
    }
    if (!format.of_runs || (paths.size() == 1 && !report::is_folder(paths.front()))) {
        return std::nullopt;
    }
    // A trace reads the processes one by one; of these, for marks and metrics, all is looked at.
    const bool one_by_one = format.name == "perfetto" && !arguments.has_stretch();
    report::RunCollection run =
        report::collect_run(paths, one_by_one ? report::Keep::totals : report::Keep::everything);
    if (run.members.empty() && paths.size() > 1) {
        return report_errors(run);
    }
    if (run.members.size() < 2 && paths.size() == 1) {
        return std::nullopt;
    }
    return format.name == "perfetto" ? export_run_to_perfetto(arguments, run)
                                     : export_metrics_of_run(arguments, std::move(run));
}

/// One recording or two; `loaded` is in the order of the command line.
int export_recordings(const ExportArguments& arguments, const Format& format,
                      std::vector<LoadedReport> loaded, const report::MomentCollector& moments) {
    ExportInputs inputs(arguments, moments);
    std::vector<std::pair<std::string, std::string>> warnings;
    const std::string last_file = loaded.back().file;
    for (LoadedReport& each : loaded) {
        const std::string file = each.file;
        std::string problem;
        auto recording = prepare_recording(std::move(each), arguments, format, &problem);
        if (recording == nullptr) {
            return fail(problem);
        }
        for (std::string& what : warnings_of(*recording)) {
            warnings.emplace_back(file, std::move(what));
        }
        if (!inputs.take(file, std::move(recording), format)) {
            return fail(inputs.problem());
        }
    }
    // pprof is compressed by its own definition.
    ExportOutput output(arguments.output, format.name != "pprof");
    if (!output.problem().empty()) {
        return fail(output.problem());
    }
    const report::exports::Result result = format.write(inputs.input(), output.sink());
    if (!result.written || !output.finish()) {
        return fail(output.problem());
    }
    if (!result.warning.empty()) {
        warnings.emplace_back(last_file, result.warning);
    }
    for (const auto& [file, warning] : warnings) {
        print_diagnostic(report::printable(file, false) + ": " + report::printable(warning, false));
    }
    return EXIT_SUCCESS;
}

int export_to(const ExportArguments& arguments, const Format& format) {
    if (const std::optional<int> code = export_run(arguments, format)) {
        return *code;
    }
    std::string problem;
    std::vector<LoadedReport> loaded;
    // Of stacks these are moments, of events a stretch.
    report::MomentCollector moments(
        format.weighs
            ? std::vector{arguments.at,
                          arguments.has_stretch() && arguments.from.empty() ? std::string("0s")
                                                                            : arguments.from,
                          arguments.until}
            : std::vector<std::string>());
    if (arguments.files.size() == 2) {
        auto both = load_two_reports(arguments.files[0], arguments.files[1], &problem,
                                     "name the report of one of them");
        if (!both) {
            return fail(problem);
        }
        loaded.push_back(std::move(both->first));
        loaded.push_back(std::move(both->second));
    } else {
        auto one = load_report(arguments.files.front(), &problem, "name the report of one of them",
                               moments.sink_factory());
        if (!one) {
            return fail(problem);
        }
        if (const std::string log = report::find_event_log(one->file, one->report);
            moments.any() && !log.empty() && moments.log() != log) {
            report::read_through(log, moments.sink_factory());
        }
        loaded.push_back(std::move(*one));
    }
    return export_recordings(arguments, format, std::move(loaded), moments);
}

/// What the format cannot honour; empty: it can.
std::string find_misuse(const ExportArguments& arguments, const Format& format) {
    const std::string name(format.name);
    const std::string leave_out = "; leave it out";
    if (!arguments.by.empty() && !format.weighs) {
        return "--by is for formats of stacks, not for " + name + leave_out;
    }
    if (!arguments.filter.empty() && !format.filters) {
        return "--filter has no meaning for " + name + leave_out;
    }
    if (arguments.filter.by_nn_module() && (arguments.by == "bytes" || arguments.by == "count")) {
        return "--by " + arguments.by +
               " is of the whole run, which a recording does not have by nn.Module; weigh by peak "
               "or live";
    }
    if (arguments.skips.given() && name != "perfetto") {
        return "--skip has no meaning for " + name + ", which has whole call stacks" + leave_out;
    }
    if (!arguments.at.empty() && !format.weighs) {
        return "--at is for formats of stacks, not for " + name +
               (format.of_events ? "; --from and --until choose a stretch of it" : leave_out);
    }
    if (!arguments.at.empty() && !arguments.by.empty()) {
        return "--at MOMENT weighs the bytes held then; leave --by out";
    }
    if (arguments.has_stretch() && !format.of_events) {
        const std::string compare = "--from and --until compare two moments";
        if (!format.compares) {
            return name == "pprof" ? compare +
                                         ", which pprof does itself: export each with --at, "
                                         "and give one of them to -diff_base"
                   : format.weighs
                       ? compare + ", which " + name +
                             " cannot show; choose one with --at, or export folded"
                       : "--from and --until have no meaning for " + name + "; leave them out";
        }
        if (!arguments.at.empty() || !arguments.by.empty()) {
            return compare + " by the bytes held then; leave " +
                   (arguments.at.empty() ? "--by" : "--at") + " out";
        }
        if (arguments.files.size() > 1) {
            return compare + " of one recording; give one file, or leave them out";
        }
    }
    const std::size_t most = format.of_runs ? arguments.files.size() : format.compares ? 2 : 1;
    if (arguments.files.size() > most) {
        return name == "pprof"
                   ? "pprof takes one recording and compares itself: export each, and give one to "
                     "go tool pprof -diff_base"
               : most == 2 ? name + " takes one recording, or two to compare"
                           : name + " takes one recording; export each by itself";
    }
    return "";
}

}  // namespace

int export_command(int argc, char** argv) {
    ExportArguments arguments;
    CLI::App app(
        "Writes a recording in a format that another program reads: folded stacks, a profile, a "
        "trace, metrics.",
        "memlab-report export");
    define(app, arguments);
    parse(app, argc, argv);
    const Format& format = *find_format(arguments.format);
    if (const std::string misuse = find_misuse(arguments, format); !misuse.empty()) {
        return fail(misuse);
    }
    const bool to_standard_output = arguments.output.empty() || arguments.output == "-";
    if (format.binary && to_standard_output && isatty(STDOUT_FILENO) != 0) {
        return fail(std::string(format.name) +
                    " is binary and standard output a terminal; add -o FILE");
    }
    return with_memory_for(arguments.files.front(), [&] { return export_to(arguments, format); });
}

}  // namespace memlab::tools
