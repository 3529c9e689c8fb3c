#include "tools/report/commands.hpp"

#include <unistd.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/device_label.hpp"
#include "report/export/formats.hpp"
#include "report/export/gzip.hpp"
#include "report/find_event_log.hpp"
#include "report/symbols/symbolizer.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/export_file.hpp"
#include "tools/report/report_options.hpp"
#include "tools/report/run_members.hpp"

namespace memlab::tools {

namespace {

using exports::Format;
using exports::Weight;

constexpr std::array<std::pair<std::string_view, Weight>, 4> weights = {{{"peak", Weight::peak},
                                                                         {"bytes", Weight::bytes},
                                                                         {"count", Weight::count},
                                                                         {"live", Weight::live}}};

struct ExportArguments : ReportOptions {
    std::string format;
    std::string output;
    std::string by;
};

std::string format_list() {
    std::string text = "Formats:\n";
    for (const Format& format : exports::formats) {
        text.append("  ").append(format.name).append(14 - format.name.size(), ' ');
        text.append(format.what).append(format.needs_log ? " (from an event log)" : "");
        text.append("\n");
    }
    return text;
}

const Format* find_format(std::string_view name) {
    const auto* const found =
        std::find_if(exports::formats.begin(), exports::formats.end(),
                     [name](const Format& format) { return format.name == name; });
    return found == exports::formats.end() ? nullptr : found;
}

std::string known_format(const std::string& name) {
    if (find_format(name) != nullptr) {
        return "";
    }
    std::string list;
    for (const Format& format : exports::formats) {
        list.append(list.empty() ? "" : ", ").append(format.name);
    }
    return "takes one of " + list + ", not " + name;
}

std::string known_weight(const std::string& name) {
    const bool known = std::any_of(weights.begin(), weights.end(),
                                   [&](const auto& each) { return each.first == name; });
    return known ? "" : "takes peak, bytes, count or live, not " + name;
}

void define(CLI::App& app, ExportArguments& arguments) {
    add_one_file(app, arguments);
    app.add_option("--to", arguments.format, "The format: one of those below")
        ->required()
        ->type_name("FORMAT")
        ->check(known_format);
    app.add_option("-o,--output", arguments.output,
                   "Where to (default: standard output); it is replaced when all is written, and "
                   "compressed if its name ends in .gz")
        ->type_name("FILE");
    app.add_option("--by", arguments.by,
                   "What a stack weighs (flamegraph, folded, pprof, speedscope): peak (default), "
                   "bytes or count of all allocations, or live: bytes never freed")
        ->type_name("WHAT")
        ->check(known_weight);
    add_device(app, arguments);
    add_filter(app, arguments);
    add_skip(app, arguments.skips);
    add_symbols(app, arguments.no_symbols);
    app.footer(format_list() +
               "\n"
               "Examples:\n"
               "  memlab-report export --to flamegraph memlab.train.4711.json > peak.svg\n"
               "  memlab-report export --to perfetto -o trace.pftrace memlab.train.4711.memlog\n"
               "  memlab-report export --to pprof -o live.pb.gz --by live memlab.train.4711.json\n"
               "  memlab-report export --to openmetrics -o run.prom run/   all ranks of a run\n"
               "\n"
               "docs/memlab-report.md describes each format and the programs that read it.\n"
               "Exit code: 0 good, 2 bad input or usage; then nothing is written.");
}

/// Sets `device` to the only one of the report, or of the GPU that it is: to what an allocator of
/// the program's holds there, where that was seen from inside. False where several GPUs could be
/// meant.
bool choose_one_device(const report::Report& report, std::optional<std::uint64_t>* device) {
    const report::Device* chosen = nullptr;
    for (const report::Device& each : report.devices) {
        if (!each.used() || (*device && !report::is_on(each.index, **device))) {
            continue;
        }
        if (chosen != nullptr && chosen->gpu() != each.gpu()) {
            return false;
        }
        if (chosen == nullptr || !each.is_gpu()) {
            chosen = &each;
        }
    }
    if (chosen != nullptr) {
        *device = chosen->index;
    }
    return true;
}

int export_metrics_of_run(const ExportArguments& arguments, report::RunCollection run) {
    std::vector<const report::Report*> processes;
    for (report::RunMember& member : run.members) {
        report::choose_level(member.report, arguments.level);
        processes.push_back(&member.report);
    }
    ExportFile output(arguments.output);
    if (!output.problem().empty()) {
        return fail(output.problem());
    }
    const exports::Result result =
        exports::write_openmetrics_of_run(processes, arguments.device, output);
    if (!result.written || !output.finish()) {
        return fail(output.problem());
    }
    return report_errors(run);
}

int export_to(const ExportArguments& arguments, const Format& format) {
    const std::string path = meant_by(arguments.files.front());
    if (format.name == "openmetrics" && report::is_folder(path)) {
        report::RunCollection run = report::collect_run({path});
        if (run.members.size() > 1) {
            return export_metrics_of_run(arguments, std::move(run));
        }
    }
    std::string problem;
    std::optional<LoadedReport> loaded = load_report(arguments.files.front(), &problem);
    if (!loaded) {
        return fail(problem);
    }
    report::choose_level(loaded->report, arguments.level);
    const std::string& file = loaded->file;
    std::string log = report::find_event_log(file, loaded->report);
    const exports::Recording recording{std::move(loaded->report), std::move(log),
                                       std::move(loaded->warning)};
    if (format.needs_log && recording.log.empty()) {
        return fail(file +
                    ": a report has no single events; give the event log (*.memlog), which is kept "
                    "beside it unless MEMLAB_KEEP_LOG=0");
    }
    if (format.of_events && !arguments.filter.empty() && recording.log.empty()) {
        return fail(file +
                    ": a report has no single events for --filter to choose from; give its "
                    "event log (*.memlog)");
    }
    if (problem = check_device(recording.report, arguments.device); !problem.empty()) {
        return fail(file + ": " + problem);
    }
    std::optional<std::uint64_t> device = arguments.device;
    if (format.one_device && !choose_one_device(recording.report, &device)) {
        return fail(file + ": " + std::string(format.name) +
                    " has no column for the GPU, and several were used; choose one with --device");
    }
    report::Symbolizer symbolizer;
    report::Resolver resolver(recording.report, arguments.no_symbols ? nullptr : &symbolizer,
                              arguments.skips);
    exports::Input input{
        .recording = recording, .resolver = resolver, .filter = arguments.filter, .device = device};
    for (const auto& [name, weight] : weights) {
        input.by = name == arguments.by ? weight : input.by;
    }
    ExportFile output(arguments.output);
    if (!output.problem().empty()) {
        return fail(output.problem());
    }
    // pprof is compressed by its own definition.
    std::optional<exports::GzipSink> packed;
    if (arguments.output.ends_with(".gz") && format.name != "pprof") {
        packed.emplace(output);
    }
    const exports::Result result =
        format.write(input, packed ? static_cast<report::ByteSink&>(*packed) : output);
    if (!result.written || (packed && !packed->finish()) || !output.finish()) {
        return fail(output.problem());
    }
    for (const std::string& warning : {recording.warning, result.warning}) {
        if (!warning.empty()) {
            diagnostics().warn("{}: {}", report::printable(file, false),
                               report::printable(warning, false));
        }
    }
    return EXIT_SUCCESS;
}

}  // namespace

int export_command(int argc, char** argv) {
    ExportArguments arguments;
    CLI::App app(
        "Writes a recording in a format that another program reads: a flame graph, a profile, a "
        "trace, metrics.",
        "memlab-report export");
    define(app, arguments);
    if (const std::optional<int> code = parse(app, argc, argv, "memlab-report export")) {
        return *code;
    }
    const Format& format = *find_format(arguments.format);
    const std::string name(format.name);
    if (!arguments.by.empty() && !format.weighs) {
        return fail("--by is for formats of stacks, not for " + name + "; leave it out");
    }
    if (!arguments.filter.empty() && !format.filters) {
        return fail("--filter has no meaning for " + name + "; leave it out");
    }
    if (arguments.skips.given() && name != "perfetto") {
        return fail("--skip has no meaning for " + name +
                    ", which has whole call stacks; leave it out");
    }
    const bool to_standard_output = arguments.output.empty() || arguments.output == "-";
    if (format.binary && to_standard_output && isatty(STDOUT_FILENO) != 0) {
        return fail(name + " is binary and standard output a terminal; add -o FILE");
    }
    try {
        return export_to(arguments, format);
    } catch (const std::bad_alloc&) {
        return fail(arguments.files.front() +
                    ": needs more memory than there is; read it on a larger machine");
    }
}

}  // namespace memlab::tools
