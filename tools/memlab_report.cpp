// memlab-report: what a recording says, for people or for scripts.
#include <unistd.h>

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
#include "tools/version.hpp"
#include "tools/whatif_command.hpp"

namespace {

using namespace memlab::report;

constexpr int exit_bad_input = 2;

struct Arguments {
    std::vector<std::string> files;
    bool json = false;
    bool ascii = false;
    bool no_symbols = false;
    std::size_t top = 10;
    std::size_t stacks = 0;
    std::optional<std::uint64_t> device;
    std::string color = "auto";
};

/// CLI11's own checks name types and ranges in its words, and take -1 for a large number; these say
/// what is taken.
std::string whole_number(const std::string& text) {
    const bool digits = !text.empty() && text.size() < 10 &&
                        text.find_first_not_of("0123456789") == std::string::npos;
    return digits ? std::string() : "takes a whole number, not " + text;
}

std::string at_least_one(const std::string& text) {
    const bool zero = text.find_first_not_of('0') == std::string::npos;
    return zero ? "takes a number from 1 on, not " + text : whole_number(text);
}

std::string color_word(const std::string& text) {
    return text == "auto" || text == "always" || text == "never"
               ? std::string()
               : "takes auto, always or never, not " + text;
}

ColorMode color_mode(const std::string& word) {
    return word == "always"  ? ColorMode::always
           : word == "never" ? ColorMode::never
                             : ColorMode::automatic;
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
        ->check(whole_number);
    app.add_option("--device", arguments.device, "Only this GPU, by its index in the program")
        ->type_name("N")
        ->check(whole_number);
    app.add_option("--color", arguments.color, "auto (default: on a terminal), always or never")
        ->type_name("WHEN")
        ->check(color_word);
    app.add_flag("--ascii", arguments.ascii, "Draw with ASCII characters only");
    app.add_flag("--no-symbols", arguments.no_symbols, "Show module+offset, look nothing up");
    app.set_version_flag("--version", "memlab-report " MEMLAB_VERSION);
    app.get_formatter()->column_width(24);
    app.get_formatter()->label("REQUIRED", "");
    app.footer(
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

std::string working_directory() {
    char* path = getcwd(nullptr, 0);
    std::string result = path == nullptr ? "" : path;
    std::free(path);
    return result;
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
        text_.style = style_for(STDOUT_FILENO, color_mode(arguments.color), arguments.ascii);
        text_.top = arguments.top;
        text_.stacks = arguments.stacks;
        text_.working_directory = working_directory();
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
        std::cout.flush();
        if (!std::cout) {
            memlab::tools::diagnostics().error(
                "cannot write to standard output; is the disk full?");
            return exit_bad_input;
        }
        return errors_.empty() ? EXIT_SUCCESS : exit_bad_input;
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

}  // namespace

int main(int argc, char** argv) {
    // Nothing that this program might start shall be profiled.
    unsetenv("LD_PRELOAD");
    memlab::tools::name_program("memlab-report");
    // A file of such a name is given as ./whatif.
    const std::string_view command = argc > 1 ? argv[1] : "";
    if (command == "whatif") {
        return memlab::tools::whatif_command(argc - 1, argv + 1);
    }
    if (command == "merge") {
        return memlab::tools::merge_command(argc - 1, argv + 1);
    }
    if (command == "replay") {
        return memlab::tools::replay_command(argc - 1, argv + 1);
    }
    Arguments arguments;
    CLI::App app(
        "Shows what memlab recorded of a program's GPU memory: peaks, timeline, who held it,\n"
        "what was never freed, and why an allocation failed.",
        "memlab-report");
    define(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            return app.exit(error);
        }
        memlab::tools::diagnostics().error("{}; memlab-report --help shows the usage",
                                           error.what());
        return exit_bad_input;
    }
    return Program(arguments).run();
}
