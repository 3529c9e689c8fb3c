// memlab-report: what a recording says, for people or for scripts.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/reader.hpp"
#include "report/runs/collection.hpp"
#include "report/summary.hpp"
#include "tools/diagnostics.hpp"
#include "tools/run_command.hpp"
#include "tools/subcommand.hpp"
#include "tools/version.hpp"
#include "tools/whatif_command.hpp"

namespace {

using namespace memlab::report;

/// What is not the summary. A file of such a name is given as ./whatif.
struct Command {
    std::string_view name;
    int (*run)(int argc, char** argv);  ///< argv[0] is the name; returns the exit code
    std::string_view what;              ///< for --help: at most 50 characters
};

constexpr Command commands[] = {
    {"merge", memlab::tools::merge_command, "The ranks of a run side by side"},
    {"replay", memlab::tools::replay_command, "A recorded program through the same pool again"},
    {"whatif", memlab::tools::whatif_command, "A recorded program through other allocators"},
};

std::string list_of_commands() {
    std::string text = "Commands (memlab-report COMMAND --help says more):\n";
    for (const Command& command : commands) {
        text.append("  ").append(command.name).append(14 - command.name.size(), ' ');
        text.append(command.what).append("\n");
    }
    return text;
}

struct Arguments {
    std::vector<std::string> files;
    bool json = false;
    bool no_symbols = false;
    std::size_t top = 10;
    std::size_t stacks = 0;
    std::optional<std::uint64_t> device;
    memlab::tools::Looks looks;
};

std::string at_least_one(const std::string& text) {
    const bool zero = text.find_first_not_of('0') == std::string::npos;
    return zero ? "takes a number from 1 on, not " + text : memlab::tools::whole_number(text);
}

void define(CLI::App& app, Arguments& arguments) {
    app.add_option("FILE", arguments.files,
                   "Reports (memlab.*.json) or event logs (*.memlog),\nor the folder of a run")
        ->required()
        ->type_name("");
    app.add_flag("--json", arguments.json, "Print the summary as JSON, for scripts");
    app.add_option("--top", arguments.top, "Places in each table (default 10)")
        ->type_name("N")
        ->check(at_least_one);
    app.add_option("--stacks", arguments.stacks, "Whole call stacks of the N largest places")
        ->type_name("N")
        ->check(memlab::tools::whole_number);
    app.add_option("--device", arguments.device, "Only this GPU, by its index in the program")
        ->type_name("N")
        ->check(memlab::tools::whole_number);
    memlab::tools::add_looks(app, arguments.looks);
    app.add_flag("--no-symbols", arguments.no_symbols, "Show module+offset, look nothing up");
    app.set_version_flag("--version", "memlab-report " MEMLAB_VERSION);
    app.footer(list_of_commands() +
               "\n"
               "Examples:\n"
               "  memlab-report memlab.train.4711.json              the summary\n"
               "  memlab-report --stacks 3 memlab.train.4711.json   and whole call stacks\n"
               "  memlab-report --json memlab.*.json | jq .reports[].devices[].curves.allocated\n"
               "  memlab-report memlab.train.4711.memlog            of a program that was killed\n"
               "  memlab-report run/                                a run of several processes\n"
               "  memlab-report merge run/                          its ranks side by side\n"
               "  memlab-report whatif memlab.train.4711.memlog     through other allocators\n"
               "  memlab-report replay memlab.train.4711.memlog     through the same pool again\n"
               "\n"
               "NO_COLOR, COLUMNS, LANG and LC_ALL are heeded.\n"
               "Exit code: 0 good, 2 a file could not be read or the usage is wrong.");
}

/// False when the device that was asked for is not in the report.
bool select_device(Summary& summary, const std::optional<std::uint64_t>& device) {
    if (!device) {
        return true;
    }
    std::vector<DeviceSummary> chosen;
    for (DeviceSummary& candidate : summary.devices) {
        if (candidate.device->index == *device) {
            chosen.push_back(std::move(candidate));
        }
    }
    summary.devices = std::move(chosen);
    return !summary.devices.empty();
}

class Program {
  public:
    explicit Program(const Arguments& arguments) : arguments_(arguments) {
        text_.style = memlab::tools::style_of(arguments.looks);
        text_.top = arguments.top;
        text_.stacks = arguments.stacks;
        text_.working_directory = memlab::tools::working_directory();
    }

    int run() {
        if (arguments_.files.size() == 1 && is_folder(arguments_.files.front())) {
            memlab::tools::RunShowOptions options;
            options.text = text_;
            options.json = arguments_.json;
            options.symbols = !arguments_.no_symbols;
            return memlab::tools::show_run(arguments_.files.front(), options);
        }
        for (const std::string& file : arguments_.files) {
            show(file);
        }
        if (arguments_.json) {
            std::cout << render_json_document(objects_, errors_);
        }
        return memlab::tools::flushed(errors_.empty() ? EXIT_SUCCESS
                                                      : memlab::tools::exit_bad_input);
    }

  private:
    void show(const std::string& file) {
        const ReadResult read = read_report(file);
        if (!read.report) {
            fail(file, read.error);
            return;
        }
        Resolver resolver(*read.report, arguments_.no_symbols ? nullptr : &symbolizer_);
        Summary summary = summarize(file, *read.report, read.warning, resolver);
        if (!select_device(summary, arguments_.device)) {
            fail(file, "GPU " + std::to_string(*arguments_.device) +
                           " was not used; leave --device out to see those that were");
            return;
        }
        if (arguments_.json) {
            objects_.push_back(render_json(summary, resolver, arguments_.top));
            return;
        }
        if (arguments_.files.size() > 1) {
            std::cout << (shown_ == 0 ? "" : "\n") << text_.style.dim() << "==> "
                      << printable(file, text_.style.ascii) << " <==" << text_.style.reset()
                      << "\n";
        }
        ++shown_;
        std::cout << render_text(summary, resolver, text_);
    }

    void fail(const std::string& file, const std::string& error) {
        // What was shown so far comes before the error, also where both go to one file.
        std::cout.flush();
        errors_.emplace_back(file, error);
        memlab::tools::diagnostics().error("{}: {}", printable(file, false),
                                           printable(error, false));
    }

    const Arguments& arguments_;
    TextOptions text_;
    Symbolizer symbolizer_;
    std::size_t shown_ = 0;
    std::vector<std::string> objects_;
    std::vector<std::pair<std::string, std::string>> errors_;
};

int summary_command(int argc, char** argv) {
    Arguments arguments;
    CLI::App app(
        "Shows what memlab recorded of a program's GPU memory: peaks, timeline, who held it,\n"
        "what was never freed, and why an allocation failed.",
        "memlab-report");
    define(app, arguments);
    if (const std::optional<int> code = memlab::tools::parse(app, argc, argv, "memlab-report")) {
        return *code;
    }
    return Program(arguments).run();
}

}  // namespace

int main(int argc, char** argv) {
    // Nothing that this program might start shall be profiled.
    unsetenv("LD_PRELOAD");
    memlab::tools::name_program("memlab-report");
    const std::string_view name = argc > 1 ? argv[1] : "";
    if (name == "summary") {
        return summary_command(argc - 1, argv + 1);
    }
    for (const Command& command : commands) {
        if (name == command.name) {
            return command.run(argc - 1, argv + 1);
        }
    }
    return summary_command(argc, argv);
}
