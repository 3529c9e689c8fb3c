#include "tools/report/commands.hpp"

#include <CLI/CLI.hpp>
#include <charconv>
#include <string>
#include <vector>

#include "report/lines/line_tables.hpp"
#include "report/lines/render.hpp"
#include "report/reading/find_event_log.hpp"
#include "tools/report/report_options.hpp"

namespace memlab::tools {

namespace {

using namespace memlab::report;

struct LinesArguments {
    std::string source;
    LineQuery query;
    std::size_t every = 0;
    std::vector<std::string> sources;
    std::uint32_t context = LineTextOptions{}.context;
    ReportOptions options;
};

void define(CLI::App& app, LinesArguments& arguments) {
    app.add_option("SOURCE", arguments.source,
                   "A source file, or the end of its path, and a function, or a line of one: "
                   "model.py:Net.forward, model.py:32")
        ->required()
        ->type_name("")
        ->check([](const std::string& text) {
            return recording_name(text) ? "is missing: memlab-report lines train.py " + text
                                        : std::string();
        });
    add_files(app, arguments.options);
    add_repeated(app, "--column", arguments.query.columns,
                 "Show this column, see below, instead of the default ones; may be repeated")
        ->type_name("NAME")
        ->check([](const std::string& name) { return check_column(name); });
    app.add_option("--every", arguments.every,
                   "A table for every N steps, which end at marks; without marks, at ends "
                   "of the outermost scope; without these, the steps that the event log shows")
        ->type_name("N")
        ->check(check_positive);
    app.add_option("--step", arguments.query.step,
                   "Marks or scopes of this name end a step, instead")
        ->type_name("NAME");
    add_repeated(app, "--sources", arguments.sources,
                 "Look for moved source files in this folder, too; may be repeated")
        ->type_name("DIR");
    app.add_option("--context", arguments.context,
                   "Lines of source around each that allocated (default 10)")
        ->type_name("N")
        ->check(check_whole_number);
    add_device(app, arguments.options);
    add_filter(app, arguments.options);
    add_json(app, arguments.options, "the tables");
    add_rendering(app, arguments.options);
    app.footer(
        "Columns:\n"
        "  at_peak                       the line's memory that was held at the peak\n"
        "  bytes, count                  what the line allocated in all, and how often\n"
        "  live                          what of that was never freed\n"
        "  active, allocated, requested, reserved\n"
        "                                the whole program's: the highest value of that\n"
        "                                curve when the line allocated\n"
        "  active_bytes.all.peak, ...    the keys of torch.cuda.memory_stats\n"
        "Default: at_peak, bytes and live; with --every, bytes and count. A line includes what it "
        "calls. A report alone has bytes, count, live and at_peak; its event log is found in its "
        "folder.\n"
        "\n"
        "Examples:\n"
        "  memlab-report lines train.py memlab.python3.4711.json\n"
        "  memlab-report lines model.py:Net.forward memlab.python3.4711.memlog\n"
        "  memlab-report lines solver.cpp:Solver::step run/ --column allocated\n"
        "  memlab-report lines train.py:step run.memlog --every 10 --step step\n"
        "\n"
        "Exit code: 0 success, 2 a file could not be read, nothing was found in it, or the usage "
        "is "
        "wrong.");
}

/// Splits "model.py:Net.forward" into file and function, "model.py:32" into file and line, at the
/// first single colon: "C::D" is part of a function's name.
bool split(const std::string& source, LineQuery& query) {
    std::size_t colon = source.find(':');
    while (colon != std::string::npos && source.compare(colon, 2, "::") == 0) {
        colon = source.find(':', colon + 2);
    }
    query.file = source.substr(0, colon);
    if (colon != std::string::npos) {
        const std::string within = source.substr(colon + 1);
        const char* const end = within.data() + within.size();
        int line = 0;
        const auto [after, error] = std::from_chars(within.data(), end, line);
        if (error == std::errc{} && after == end && line > 0) {
            query.line = line;
        } else {
            query.function = within;
        }
    }
    return !query.file.empty() && (colon == std::string::npos || colon + 1 != source.size());
}

}  // namespace

int lines_command(int argc, char** argv) {
    LinesArguments arguments;
    CLI::App app(
        "Shows a source file's functions with, for each line, how much memory the program held "
        "when the line ran and how much the line allocated.",
        "memlab-report lines");
    define(app, arguments);
    parse(app, argc, argv);
    if (!split(arguments.source, arguments.query)) {
        return fail(
            "SOURCE is a file, or a file and a function (model.py:Net.forward) or a line "
            "(model.py:32), not " +
            arguments.source);
    }
    if (!arguments.query.step.empty() && arguments.every == 0) {
        return fail("--step names what ends a step of --every; add --every N");
    }
    arguments.query.every = arguments.every;
    arguments.query.device = arguments.options.device;
    arguments.query.filter = arguments.options.filter;
    LineTextOptions text;
    text.style = make_style(arguments.options.style);
    text.working_directory = working_directory();
    text.sources = arguments.sources;
    text.context = arguments.context;
    StackMoments moments(arguments.query);
    const auto show = [&](const OpenReport& open) {
        std::string problem;
        const LineTables tables =
            line_tables(open.report, open.resolver, look_for_log(open.file, open.report),
                        arguments.query, &problem, &moments);
        if (!problem.empty()) {
            throw CannotShow{problem};
        }
        if (arguments.options.json) {
            return lines_json(tables);
        }
        text.recorded_wall_ns = open.report.process.start_wall_ns;
        return render_lines(tables, text);
    };
    arguments.options.find_steps = arguments.every != 0;
    return show_reports(arguments.options, "memlab-lines", show, moments.sink_factory());
}

}  // namespace memlab::tools
