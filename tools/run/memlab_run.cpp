// memlab-run: runs a command under memlab and prints at the end what was recorded. Transparent to
// the command: its output, exit code, signals and terminal are unchanged.
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "interpose/options/option_table.hpp"
#include "own_version.hpp"
#include "report/text/terminal.hpp"
#include "report/text/units.hpp"
#include "tools/completion.hpp"
#include "tools/diagnostics.hpp"
#include "tools/doctor/command_file.hpp"
#include "tools/doctor/doctor.hpp"
#include "tools/doctor/environment.hpp"
#include "tools/help_formatter.hpp"
#include "tools/preload.hpp"
#include "tools/run/bypass_check.hpp"
#include "tools/run/launch.hpp"
#include "tools/run/python_names.hpp"
#include "tools/run/replace_caches.hpp"
#include "tools/run/run_completion.hpp"
#include "tools/run/run_file.hpp"
#include "tools/run/run_manifest.hpp"
#include "tools/run/run_report.hpp"

namespace {

using memlab::interpose::option_table;
using memlab::interpose::OptionDef;
using memlab::interpose::Settings;
using namespace memlab::tools;

constexpr int exit_bypassed = 1;
constexpr int exit_usage = 2;
constexpr int exit_not_executable = 126;
constexpr int exit_not_found = 127;
constexpr const char* manifest_variable = "MEMLAB_RUN_MANIFEST";
constexpr const char* nvtx_variable = "NVTX_INJECTION64_PATH";

struct RunArguments {
    std::string output;
    std::vector<std::string> options;
    std::string library;
    std::string replace;
    bool replaces = false;
    std::string hold;
    bool holds = false;
    bool no_pool = false;
    bool no_report = false;
    bool fail_on_bypass = false;
    bool quiet = false;
    bool help_options = false;
    bool doctor = false;
    bool json = false;
    bool completes = false;
    std::string completion;
    std::vector<std::string> command;
};

/// A usage error; what() is one line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// For CLI11, which only gets the options, not the command.
class RunFormatter final : public HelpFormatter {
  public:
    RunFormatter() : HelpFormatter(28) {}
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: memlab-run [OPTIONS] [--] COMMAND [ARGUMENTS...]\n";
    }
};

void define(CLI::App& app, RunArguments& arguments) {
    set_help(app, std::make_shared<RunFormatter>());
    app.add_option(
           "-o,--output", arguments.output,
           "Where reports go: a folder, which exists or ends in / (everything in it is read "
           "as one run), or a name with %e (program), %p (pid), %h (host), %r (rank)")
        ->type_name("PATTERN");
    app.add_option("--option", arguments.options, "Set an option of memlab; see --help-options")
        ->type_name("NAME=VALUE")
        ->expected(1)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    app.add_option("--replace", arguments.replace,
                   "Turn frameworks' own caches off by their own switches, so that memlab's pool "
                   "serves each tensor: all known, or --replace=pytorch,jax")
        ->type_name("[=NAMES]")
        ->expected(0, 1);
    app.add_option("--hold-on-oom", arguments.hold,
                   "Where an allocation fails for lack of memory, wait, for 600 seconds at most or "
                   "as many as given, so that the program can be looked at: memlab-ctl")
        ->type_name("[=SECONDS]")
        ->expected(0, 1);
    app.add_flag("--no-pool", arguments.no_pool, "Only record; memory comes from the driver");
    app.add_flag("--no-report", arguments.no_report, "Do not print the summary, only the files");
    app.add_flag("--fail-on-bypass", arguments.fail_on_bypass,
                 "Audit (MEMLAB_AUDIT=on), and exit with 1 if memory bypassed memlab, or if that "
                 "is unknown");
    app.add_flag("--quiet", arguments.quiet, "Print nothing but errors");
    app.add_option("--library", arguments.library, "The libmemlab.so to use")->type_name("PATH");
    app.add_flag("--doctor", arguments.doctor,
                 "Check what memlab can do on this machine and, with a COMMAND, for that program, "
                 "without running it; --json: for scripts. Exit code 1: nothing would be recorded");
    app.add_flag("--json", arguments.json, "With --doctor")->needs("--doctor")->group("");
    app.add_flag("--help-options", arguments.help_options, "List memlab's options");
    app.add_option("--completion", arguments.completion,
                   "Print a script that completes command lines in bash, zsh or fish, or the man "
                   "page")
        ->type_name("bash|zsh|fish|man");
    app.set_version_flag("--version", std::string("memlab-run ") + memlab::own_version,
                         "Print the version");
    app.footer(
        "Examples:\n"
        "  memlab-run ./train --epochs 3\n"
        "  memlab-run -o reports/ -- torchrun --nproc-per-node 8 train.py\n"
        "  memlab-run --replace -- python3 train.py\n"
        "  memlab-run --no-pool --option STACK_DEPTH=16 ./app\n"
        "  memlab-run --doctor -- python3 train.py\n"
        "\n"
        "Exit code: the command's own (a signal that ends it ends memlab-run too); 1 if "
        "--fail-on-bypass fails a command that succeeded, or --doctor finds that nothing would "
        "be recorded; 2 wrong usage, 126 the command cannot be executed, 127 it was not found.");
}

/// The index of the command: after "--", or the first argument that is not an option. CLI11 must
/// not parse the command's arguments.
int command_begin(int argc, char** argv) {
    static constexpr std::string_view with_value[] = {"-o", "--output", "--option", "--library",
                                                      "--completion"};
    for (int i = 1; i < argc; ++i) {
        const std::string_view argument = argv[i];
        if (argument.empty() || argument[0] != '-' || argument == "-" || argument == "--") {
            return i;
        }
        if (std::find(std::begin(with_value), std::end(with_value), argument) !=
            std::end(with_value)) {
            ++i;
        }
    }
    return argc;
}

std::string working_directory() {
    char* path = getcwd(nullptr, 0);
    std::string result = path == nullptr ? "." : path;
    std::free(path);
    return result;
}

/// Makes the pattern absolute, since the program may change its directory.
std::string absolute_pattern(const std::string& pattern) {
    if (!pattern.empty() && pattern[0] == '/') {
        return pattern;
    }
    std::string prefix;
    for (const char c : working_directory()) {
        prefix += c == '%' ? std::string("%%") : std::string(1, c);
    }
    return prefix + "/" + pattern;
}

/// Those that are set by users.
std::vector<OptionDef> options_of_users() {
    std::vector<OptionDef> options;
    std::copy_if(
        option_table().begin(), option_table().end(), std::back_inserter(options),
        [](const OptionDef& option) { return option.name != std::string_view(manifest_variable); });
    return options;
}

OptionDef find_option(const std::string& name) {
    for (const OptionDef& option : options_of_users()) {
        if (name == option.name) {
            return option;
        }
    }
    throw UsageError("there is no option " + name + "; memlab-run --help-options lists them");
}

std::pair<std::string, std::string> parse_option(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos) {
        throw UsageError("--option takes NAME=VALUE, not " + text +
                         "; memlab-run --help-options lists the names");
    }
    std::string name = text.substr(0, equals);
    std::transform(name.begin(), name.end(), name.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    if (name.compare(0, 7, "MEMLAB_") != 0) {
        name.insert(0, "MEMLAB_");
    }
    return {name, text.substr(equals + 1)};
}

void check_option(const std::string& name, const std::string& value) {
    const OptionDef option = find_option(name);
    Settings scratch;
    if (!option.parse(scratch, value)) {
        throw UsageError(name + " takes " + option.values + ", not \"" + value + "\"");
    }
}

std::string library_of(const RunArguments& arguments) {
    FoundLibrary found = find_library(arguments.library, working_directory());
    if (!found.problem.empty()) {
        throw UsageError(found.problem);
    }
    return found.path;
}

using Environment = std::vector<std::pair<std::string, std::string>>;

/// The environment variables that the options set; of duplicates the last one counts. Sets the
/// run's folder (run_folder()), and what describes the run in `run`.
Environment make_environment(const RunArguments& arguments, memlab::model::RunFile& run,
                             std::string& folder) {
    Environment environment;
    const char* inherited = std::getenv("MEMLAB_OUTPUT");
    std::string output =
        inherited == nullptr || inherited[0] == '\0' ? "memlab.%e.%p.json" : inherited;
    if (arguments.no_pool) {
        environment.emplace_back("MEMLAB_POOL", "off");
    }
    if (arguments.replaces) {
        Replacement replacement = choose_replacements(arguments.replace);
        if (!replacement.problem.empty()) {
            throw UsageError(replacement.problem);
        }
        for (const std::string& remark : replacement.remarks) {
            memlab::tools::print_diagnostic(memlab::report::printable(remark, false));
        }
        for (auto& variable : replacement.variables) {
            run.replaced.add(variable.first, variable.second);
            environment.push_back(std::move(variable));
        }
    }
    if (arguments.holds) {
        const std::string seconds = arguments.hold.empty() ? "on" : arguments.hold;
        check_option("MEMLAB_HOLD_ON_OOM", seconds);
        environment.emplace_back("MEMLAB_HOLD_ON_OOM", seconds);
    }
    if (arguments.quiet && std::getenv("MEMLAB_VERBOSITY") == nullptr) {
        environment.emplace_back("MEMLAB_VERBOSITY", "quiet");
    }
    if (arguments.fail_on_bypass) {
        environment.emplace_back("MEMLAB_AUDIT", "on");
    }
    for (const std::string& text : arguments.options) {
        const auto [name, value] = parse_option(text);
        check_option(name, value);
        if (name == "MEMLAB_OUTPUT") {
            output = value;
        } else {
            environment.emplace_back(name, value);
        }
    }
    if (!arguments.output.empty()) {
        check_option("MEMLAB_OUTPUT", arguments.output);
        output = arguments.output;
    }
    output = as_folder_if_there(absolute_pattern(output));
    folder = run_folder(output);
    environment.emplace_back("MEMLAB_OUTPUT", output);
    const std::string library = library_of(arguments);
    environment.emplace_back("LD_PRELOAD", preload_with(library, std::getenv("LD_PRELOAD")));
    if (!arguments.command.empty() && !asan_runtime(arguments.command[0], {}).empty()) {
        environment.push_back(asan_options({}));
    }
    if (effective_settings(environment).settings.names) {
        for (auto& variable : python_names(std::getenv("PYTHONPATH"))) {
            environment.push_back(std::move(variable));
        }
    }
    // NVTX supports one tool: a profiler that is already set stays, and the report says so.
    if (std::getenv(nvtx_variable) == nullptr) {
        environment.emplace_back(nvtx_variable, library);
    }
    return environment;
}

/// The program would run with the option's default, which may be no limit at all. Without memlab,
/// or for the doctor, no option matters.
void refuse_invalid(const memlab::interpose::LoadedSettings& loaded) {
    if (!loaded.settings.disabled && !loaded.invalid.empty()) {
        throw UsageError(memlab::report::printable(loaded.invalid.front(), false));
    }
}

void print_options() {
    std::cout << "Options of memlab. In the environment: MEMLAB_POOL=off ./app; or here:\n"
                 "memlab-run --option POOL=off ./app\n";
    for (const OptionDef& option : options_of_users()) {
        std::cout << "\n  " << option.name << "=" << option.default_value << "\n      takes "
                  << option.values << "\n      "
                  << memlab::report::wrap(option.meaning, 72, "      ") << "\n";
    }
}

constexpr const char* description =
    "Runs COMMAND under memlab: its GPU memory is served from memlab's pool and recorded, and a "
    "summary is printed at the end.";

int print_completion(const std::string& kind) {
    RunArguments unused;
    CLI::App app(description, "memlab-run");
    define(app, unused);
    const std::string text = run_completion(kind, shape_of(app), options_of_users());
    if (text.empty()) {
        throw UsageError("--completion takes bash, zsh, fish or man, not " + kind);
    }
    std::cout << text << std::flush;
    if (!std::cout) {
        throw UsageError("cannot write to standard output; is the disk full?");
    }
    return EXIT_SUCCESS;
}

RunArguments parse(int argc, char** argv) {
    RunArguments arguments;
    const int begin = command_begin(argc, argv);
    CLI::App app(description, "memlab-run");
    define(app, arguments);
    try {
        app.parse(begin, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            std::exit(app.exit(error));
        }
        throw UsageError(std::string(error.what()) + "; memlab-run --help shows the usage");
    }
    arguments.replaces = app.count("--replace") != 0;
    arguments.holds = app.count("--hold-on-oom") != 0;
    arguments.completes = app.count("--completion") != 0;
    int first = begin;
    if (first < argc && std::string_view(argv[first]) == "--") {
        ++first;
    }
    arguments.command.assign(argv + first, argv + argc);
    return arguments;
}

int examine(const RunArguments& arguments) {
    memlab::model::RunFile description;
    std::string folder;
    DoctorRequest request;
    request.library = library_of(arguments);
    request.variables = make_environment(arguments, description, folder);
    request.command = arguments.command;
    const Diagnosis diagnosis = diagnose(request);
    std::cout << (arguments.json ? render_json(diagnosis) : render_page(diagnosis));
    return diagnosis.exit_code();
}

int explain_start_error(const std::string& command, int error) {
    if (error == ENOENT) {
        memlab::tools::print_diagnostic(
            command + (command.find('/') == std::string::npos
                           ? ": not found in PATH; check the name"
                           : ": not found (or its interpreter is not); check the path"));
        return exit_not_found;
    }
    memlab::tools::print_diagnostic(command + ": cannot be executed (" + std::strerror(error) +
                                    "); check that it is a program and that you may run it");
    return exit_not_executable;
}

/// Runs the command; returns only if it could not be started.
int run(const RunArguments& arguments) {
    memlab::model::RunFile description;
    std::string folder;
    description.memlab_version = memlab::own_version;
    description.directory = working_directory();
    description.command = arguments.command;
    Environment environment = make_environment(arguments, description, folder);
    const memlab::interpose::LoadedSettings loaded = effective_settings(environment);
    refuse_invalid(loaded);
    const memlab::interpose::Settings& settings = loaded.settings;
    if (!settings.arguments) {
        description.command.resize(1);
    }
    RunManifest manifest;
    if (manifest.error().empty()) {
        environment.emplace_back(manifest_variable, manifest.path());
    } else {
        memlab::tools::print_diagnostic(manifest.error() +
                                        "; reports are written anyway, but not listed here");
    }
    description.start_wall_ns = memlab::report::wall_time_now_ns();
    const LaunchResult result = launch(arguments.command, environment);
    description.end_wall_ns = memlab::report::wall_time_now_ns();
    if (result.start_error != 0) {
        return explain_start_error(arguments.command[0], result.start_error);
    }
    RunReportOptions options;
    options.summary = !arguments.no_report;
    options.quiet = arguments.quiet;
    options.arguments = settings.arguments;
    options.switched_off = settings.disabled  ? "MEMLAB_DISABLE=on"
                           : !settings.record ? "MEMLAB_RECORD=off"
                                              : "";
    options.working_directory = description.directory;
    options.folder = folder;
    options.start_wall_ns = description.start_wall_ns;
    options.end_wall_ns = description.end_wall_ns;
    const std::vector<RunFiles> files = manifest.take();
    if (manifest.error().empty()) {
        const std::vector<RunProcess> processes = report_run(files, result, options);
        if (!folder.empty() && !processes.empty()) {
            const std::string error = write_run_file(
                folder, render_run_file(std::move(description), folder, result, processes));
            if (!error.empty()) {
                memlab::tools::print_diagnostic(memlab::report::printable(error, false));
            }
        }
    }
    if (const char* outer = std::getenv(manifest_variable)) {
        pass_on(files, outer);
    }
    const std::string bypass =
        !arguments.fail_on_bypass ? std::string()
        : !manifest.error().empty()
            ? "cannot tell whether memory bypassed memlab: " + manifest.error()
            : bypass_problem(files);
    manifest.remove();
    if (!bypass.empty()) {
        memlab::tools::print_diagnostic(bypass);
        if (WIFEXITED(result.wait_status) && WEXITSTATUS(result.wait_status) == 0) {
            return exit_bypassed;
        }
    }
    end_like(result.wait_status);
}

}  // namespace

int main(int argc, char** argv) {
    memlab::tools::set_program_name("memlab-run");
    try {
        const RunArguments arguments = parse(argc, argv);
        if (arguments.help_options) {
            print_options();
            return EXIT_SUCCESS;
        }
        if (arguments.completes) {
            return print_completion(arguments.completion);
        }
        if (arguments.doctor) {
            return examine(arguments);
        }
        if (arguments.command.empty()) {
            throw UsageError("no command given; memlab-run --help shows the usage");
        }
        return run(arguments);
    } catch (const UsageError& error) {
        memlab::tools::print_diagnostic(error.what());
        return exit_usage;
    }
}
