// memlab-top: who holds the memory of this machine's GPUs now, on a terminal, once as text or JSON,
// or as metrics over HTTP.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include "own_version.hpp"
#include "report/text/terminal.hpp"
#include "tools/completion.hpp"
#include "tools/diagnostics.hpp"
#include "tools/help_formatter.hpp"
#include "tools/live/holders.hpp"
#include "tools/top/exporter.hpp"
#include "tools/top/list_view.hpp"
#include "tools/top/session.hpp"
#include "tools/top/top_completion.hpp"
#include "tools/top/top_json.hpp"
#include "tools/top/watcher.hpp"

namespace {

using namespace memlab::tools;
using memlab::report::ColorMode;
using memlab::report::Style;

constexpr int exit_usage = 2;

struct TopArguments {
    bool once = false;
    bool json = false;
    double interval = 0;
    std::string sort = "used";
    std::string filter;
    std::string listen;
    std::size_t nn_module_depth = 2;
    bool anonymize = false;
    std::string color = "auto";
    bool ascii = false;
    std::string completion;
};

/// A usage error; what() is one line.
struct TopUsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

class TopFormatter final : public HelpFormatter {
  public:
    TopFormatter() : HelpFormatter(28) {}
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: memlab-top [OPTIONS]\n";
    }
};

constexpr const char* description =
    "Shows who holds the memory of this machine's GPUs now: every GPU, every process, and of those "
    "under memlab the call sites and nn.Modules. Root sees all processes, others their own.";

constexpr const char* sort_words =
    "used, allocated, reserved, tensors, per-minute, per-step, pid or command";

/// A key as --sort takes it: what the view calls it, in one word.
std::string word_of(SortKey key) {
    std::string word = key == SortKey::pid ? "pid" : name_of(key);
    std::replace(word.begin(), word.end(), ' ', '-');
    return word;
}

void define(CLI::App& app, TopArguments& arguments) {
    set_help(app, std::make_shared<TopFormatter>());
    app.add_flag("--once", arguments.once, "Print one sample as text and end");
    app.add_flag("--json", arguments.json, "Print one sample as JSON and end");
    app.add_option("--interval", arguments.interval,
                   "Time between samples (default 1, with --listen 5)")
        ->type_name("SECONDS")
        ->check(CLI::Range(0.1, 3600.0).description(""));
    app.add_option("--sort", arguments.sort, "By " + std::string(sort_words) + " (default used)")
        ->type_name("KEY");
    app.add_option("--filter", arguments.filter,
                   "Only processes with TEXT in command, user, process id or container")
        ->type_name("TEXT");
    app.add_option("--listen", arguments.listen,
                   "Serve metrics for Prometheus (OpenMetrics) instead; without an ADDRESS to "
                   "this machine alone (127.0.0.1)")
        ->type_name("[ADDRESS:]PORT");
    app.add_option("--nn-module-depth", arguments.nn_module_depth,
                   "Parts of nn.Modules' names in metrics (default 2; 0: none)")
        ->type_name("N")
        ->check(CLI::Range(0, 16).description(""));
    app.add_flag("--anonymize", arguments.anonymize,
                 "Metrics without host and container, and GPUs' UUIDs replaced");
    app.add_option("--color", arguments.color, "auto (default: on a terminal), always or never")
        ->type_name("WHEN")
        ->check(CLI::IsMember({"auto", "always", "never"}).description(""));
    app.add_flag("--ascii", arguments.ascii, "Draw with ASCII characters only");
    app.add_option("--completion", arguments.completion,
                   "Print a script that completes command lines in bash, zsh or fish, or the man "
                   "page")
        ->type_name("bash|zsh|fish|man");
    app.set_version_flag("--version", std::string("memlab-top ") + memlab::own_version,
                         "Print the version");
    app.footer(
        "Keys: ? lists them.\n"
        "\n"
        "Examples:\n"
        "  memlab-top\n"
        "  memlab-top --once --filter train.py\n"
        "  memlab-top --json | jq .processes[].command\n"
        "  memlab-top --listen 127.0.0.1:9435\n"
        "\n"
        "MEMLAB_ARGUMENTS=off: commands are names of programs. Exit code: 0; 2 wrong usage, or "
        "--listen finds the port taken.");
}

Style style_of(const TopArguments& arguments) {
    return memlab::report::style_for(STDOUT_FILENO,
                                     arguments.color == "always"  ? ColorMode::always
                                     : arguments.color == "never" ? ColorMode::never
                                                                  : ColorMode::automatic,
                                     arguments.ascii);
}

int print(const std::string& text) {
    std::cout << text << std::flush;
    if (!std::cout) {
        throw TopUsageError("cannot write to standard output; is the disk full?");
    }
    return EXIT_SUCCESS;
}

ViewState view_of(const TopArguments& arguments) {
    ViewState state;
    state.filter = arguments.filter;
    for (std::size_t i = 0; i < sort_keys; ++i) {
        state.sort = static_cast<SortKey>(i);
        if (arguments.sort == word_of(state.sort)) {
            return state;
        }
    }
    throw TopUsageError("--sort takes " + std::string(sort_words) + ", not " +
                        memlab::report::printable(arguments.sort, false));
}

int print_once(const TopArguments& arguments) {
    Sampler sampler(std::chrono::seconds(2));
    Interest interest;
    interest.all = true;
    interest.nn_modules = arguments.json ? 200 : 4;
    const Watched watched = sampler.take(interest);
    History history;
    history.add(watched.sample);
    if (arguments.json) {
        return print(render_top_json(history, watched.details, shows_arguments()) + "\n");
    }
    const Style style = style_of(arguments);
    Screen screen;
    screen.columns = style.line_columns();
    screen.ascii = style.ascii;
    screen.arguments = shows_arguments();
    return print(
        plain_text(once_lines(history, watched.details, view_of(arguments), screen), style));
}

std::chrono::milliseconds interval_of(const TopArguments& arguments, int otherwise_s) {
    const double seconds = arguments.interval > 0 ? arguments.interval : otherwise_s;
    return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

int run(const TopArguments& arguments) {
    if (!arguments.listen.empty()) {
        ExporterOptions options;
        options.address = arguments.listen;
        options.interval = interval_of(arguments, 5);
        options.metrics.nn_module_depth = arguments.nn_module_depth;
        options.metrics.anonymize = arguments.anonymize;
        options.metrics.arguments = shows_arguments();
        return run_exporter(options);
    }
    const Style style = style_of(arguments);
    if (arguments.once || arguments.json) {
        return print_once(arguments);
    }
    if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) {
        return print_once(arguments);
    }
    SessionOptions options;
    options.interval = interval_of(arguments, 1);
    options.color = style.color;
    options.ascii = style.ascii;
    options.arguments = shows_arguments();
    options.view = view_of(arguments);
    const std::string problem = run_session(options);
    if (problem.empty()) {
        return EXIT_SUCCESS;
    }
    print_diagnostic(memlab::report::printable(problem, false) + "; printed once, as text");
    TopArguments plain = arguments;
    plain.color = arguments.color == "always" ? "always" : "never";
    return print_once(plain);
}

}  // namespace

int main(int argc, char** argv) {
    memlab::tools::set_program_name("memlab-top");
    std::signal(SIGXFSZ, SIG_IGN);  // past a file size limit: one line, as of a full disk
    try {
        TopArguments arguments;
        CLI::App app(description, "memlab-top");
        define(app, arguments);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& error) {
            if (error.get_exit_code() == 0) {
                return app.exit(error);
            }
            throw TopUsageError(std::string(error.what()) + "; memlab-top --help shows the usage");
        }
        if (app.count("--completion") != 0) {
            const std::string text = top_completion(arguments.completion, shape_of(app));
            if (text.empty()) {
                throw TopUsageError("--completion takes bash, zsh, fish or man, not " +
                                    memlab::report::printable(arguments.completion, false));
            }
            return print(text);
        }
        return run(arguments);
    } catch (const TopUsageError& error) {
        memlab::tools::print_diagnostic(error.what());
        return exit_usage;
    }
}
