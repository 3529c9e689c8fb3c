#include "tools/diff_command.hpp"

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>
#include <new>
#include <optional>
#include <string>

#include "report/symbolizer.hpp"
#include "report/views/diff.hpp"
#include "tools/report_options.hpp"
#include "tools/view_options.hpp"

namespace memlab::tools {

namespace {

struct Arguments : ReportOptions {
    std::string before;
    std::string after;
    std::string by = "stack";
};

void define(CLI::App& app, Arguments& arguments) {
    app.add_option("BEFORE", arguments.before,
                   "A report (memlab.*.json), an event log (*.memlog),\nor the folder of a run of "
                   "one process")
        ->required()
        ->type_name("");
    app.add_option("AFTER", arguments.after, "What to compare with it")->required()->type_name("");
    add_sort(app, arguments, report::order_names());
    app.add_option("--by", arguments.by,
                   "stack: each call stack by itself (default);\nplace: "
                   "whoever called")
        ->type_name("WHAT")
        ->check([](const std::string& text) {
            return text == "stack" || text == "place" ? std::string()
                                                      : "takes stack or place, not " + text;
        });
    add_top(app, arguments, "Call stacks and scopes", 20);
    add_filter(app, arguments);
    add_device(app, arguments);
    add_templates(app, arguments);
    add_json(app, arguments, "the comparison");
    add_rendering(app, arguments);
    app.footer(
        "Call sites are matched by the functions and files of their stacks, not by lines,\n"
        "folders or addresses: code may have moved. Sorted by the size of the change.\n"
        "\n"
        "Examples:\n"
        "  memlab-report diff plain.json checkpointed.json      what it did to the peak\n"
        "  memlab-report diff --sort count old.json new.json    who allocates more often\n"
        "  memlab-report diff --by place --filter module=libtorch old.memlog new.memlog\n"
        "  memlab-report diff --json old.json new.json | jq .devices[].totals\n"
        "\n"
        "memlab-report check --baseline fails a build where memory grew.\n"
        "Exit code: 0 good, whatever changed; 2 a file could not be read or the usage is wrong.");
}

bool used(const report::Report& report, std::uint64_t index) {
    for (const report::Device& device : report.devices) {
        if (device.index == index && device.used()) {
            return true;
        }
    }
    return false;
}

int diff(const Arguments& arguments) {
    std::string problem;
    const std::optional<LoadedReport> before = load_report(arguments.before, &problem);
    if (!before) {
        return fail(problem);
    }
    const std::optional<LoadedReport> after = load_report(arguments.after, &problem);
    if (!after) {
        return fail(problem);
    }
    if (arguments.device && !used(before->report, *arguments.device) &&
        !used(after->report, *arguments.device)) {
        return fail("GPU " + std::to_string(*arguments.device) +
                    " was used by neither; leave --device out to see those that were");
    }
    report::DiffOptions options{view_of(arguments)};
    options.by_place = arguments.by == "place";
    report::Symbolizer symbolizer;
    report::Symbolizer* symbols = arguments.no_symbols ? nullptr : &symbolizer;
    report::Resolver before_resolver(before->report, symbols);
    report::Resolver after_resolver(after->report, symbols);
    const report::DiffSide a{before->file, before->report, before_resolver,
                             arguments.filter.sites(before->report, before_resolver)};
    const report::DiffSide b{after->file, after->report, after_resolver,
                             arguments.filter.sites(after->report, after_resolver)};
    const report::Diff result = report::diff_reports(a, b, options);
    std::cout << (arguments.json ? report::render_diff_json(a, b, result, options)
                                 : report::render_diff_text(a, b, result, options));
    return flushed(EXIT_SUCCESS);
}

}  // namespace

int diff_command(int argc, char** argv) {
    Arguments arguments;
    CLI::App app(
        "Compares two recordings of a program: in total, by call site, by scope; what grew, what\n"
        "shrank, what is new.",
        "memlab-report diff");
    define(app, arguments);
    if (const std::optional<int> code = parse(app, argc, argv, "memlab-report diff")) {
        return *code;
    }
    try {
        return diff(arguments);
    } catch (const std::bad_alloc&) {
        return fail("the comparison needs more memory than there is; do it on a larger machine");
    }
}

}  // namespace memlab::tools
