// memlab-ctl: asks programs that run under memlab about their GPU memory, and tells them what to
// do, by their control channel.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "interpose/control/protocol.hpp"
#include "own_version.hpp"
#include "report/text/terminal.hpp"
#include "tools/completion.hpp"
#include "tools/control/control_completion.hpp"
#include "tools/control/holders_command.hpp"
#include "tools/control/replies_json.hpp"
#include "tools/control/replies_text.hpp"
#include "tools/control/targets.hpp"
#include "tools/diagnostics.hpp"
#include "tools/help_formatter.hpp"
#include "tools/live/find_processes.hpp"

namespace {

using memlab::interpose::argument_problem;
using memlab::interpose::find_verb;
using memlab::interpose::info;
using memlab::interpose::Verb;
using memlab::interpose::VerbDef;
using memlab::interpose::verbs;
using namespace memlab::tools;

constexpr int exit_failed = 2;

struct ControlArguments {
    std::vector<std::string> words;
    bool json = false;
    std::uint64_t device = 0;
    bool has_device = false;
    /// "keep=2GiB" of --keep 2GiB, and the like.
    std::vector<std::string> of_yield;
    std::string completion;
    bool completes = false;
};

class ControlFormatter final : public HelpFormatter {
  public:
    ControlFormatter() : HelpFormatter(28) {}
    std::string make_usage(const CLI::App*, std::string) const override {
        return "Usage: memlab-ctl [OPTIONS] [PID|RUN/] [VERB [ARGUMENTS...]]\n";
    }
    std::string make_positionals(const CLI::App*) const override { return {}; }
};

constexpr const char* description =
    "Asks programs that run under memlab about their GPU memory: the one with this process id, "
    "those that record into the folder RUN/, or the only one there is. Without a VERB: lists them, "
    "or says the status of PID.";

/// Options for the words that yield takes.
void define_yield(CLI::App& app, ControlArguments& arguments) {
    struct Option {
        const char* name;
        const char* type;
        const char* text;
    };
    constexpr Option options[] = {
        {"keep", "BYTES", "Leave so much memory on each GPU"},
        {"to", "host|disk:DIR", "Move it to the host (default), or into a file in DIR"},
        {"engine", "auto|pool|driver|both",
         "pool: move what memlab's pool has, also if more stays; driver: by the driver's "
         "checkpoint, with the context; both: the pool's, then the rest by the driver"},
        {"timeout", "SECONDS", "Wait so long for the GPU's work (default: MEMLAB_YIELD_TIMEOUT)"},
    };
    for (const Option& option : options) {
        app.add_option_function<std::string>(
               std::string("--") + option.name,
               [&arguments, name = option.name](const std::string& value) {
                   arguments.of_yield.push_back(std::string(name) + "=" + value);
               },
               option.text)
            ->type_name(option.type)
            ->group("With yield");
    }
    app.add_flag_callback(
           "--prepare", [&arguments] { arguments.of_yield.emplace_back("prepare"); },
           "Move nothing yet: take and pin the host memory for it")
        ->group("With yield");
}

void define(CLI::App& app, ControlArguments& arguments) {
    set_help(app, std::make_shared<ControlFormatter>());
    app.add_option("words", arguments.words)->type_name("WORDS");
    app.add_flag("--json", arguments.json, "Print the replies as JSON");
    app.add_option("--device", arguments.device,
                   "With holders: this GPU alone, as nvidia-smi counts; with yield, as the program "
                   "counts")
        ->type_name("N");
    app.add_option("--completion", arguments.completion,
                   "Print a script that completes command lines in bash, zsh or fish, or the man "
                   "page")
        ->type_name("bash|zsh|fish|man");
    define_yield(app, arguments);
    app.set_version_flag("--version", std::string("memlab-ctl ") + memlab::own_version,
                         "Print the version");
    app.footer(
        "Examples:\n"
        "  memlab-ctl                          the programs that run under memlab\n"
        "  memlab-ctl sites 20                 who holds the memory of the only one\n"
        "  memlab-ctl 4711 mark before-epoch   then: memlab-ctl 4711 sites since-mark\n"
        "  memlab-ctl 4711 snapshot now        a report of this moment\n"
        "  memlab-ctl 4711 yield --keep 2GiB   its memory leaves the GPU, except 2 GiB\n"
        "  memlab-ctl holders --device 0       all that hold memory of GPU 0\n"
        "\n"
        "Exit code: 0; 2 if a process does not answer or cannot do what is asked, if there are "
        "several and none is named (they are listed), or for wrong usage.");
}

/// What is asked of whom.
struct Command {
    std::optional<Verb> verb;
    std::vector<std::string> arguments;
    std::string target;  ///< empty: none is named
};

Command command_of(const ControlArguments& given) {
    Command command;
    std::vector<std::string> words = given.words;
    const auto is_target = [](const std::string& word) {
        std::error_code problem;
        return process_id(word) != 0 || word.find('/') != std::string::npos ||
               (find_verb(word) == nullptr && std::filesystem::is_directory(word, problem));
    };
    if (!words.empty() && is_target(words.front())) {
        command.target = words.front();
        words.erase(words.begin());
    }
    const bool yields = !words.empty() && words.front() == info(Verb::yield).name;
    if (!given.of_yield.empty() && !yields) {
        const std::string& word = given.of_yield.front();
        throw ControlError("--" + word.substr(0, word.find('=')) + " is an option of yield");
    }
    if (given.has_device && !yields) {
        throw ControlError("--device is for holders and yield");
    }
    words.insert(words.end(), given.of_yield.begin(), given.of_yield.end());
    if (given.has_device) {
        words.push_back("gpu=" + std::to_string(given.device));
    }
    if (words.empty()) {
        return command;
    }
    const VerbDef* const verb = find_verb(words.front());
    if (verb == nullptr) {
        throw ControlError(memlab::report::printable(words.front(), false) +
                           ": neither a verb nor a process; memlab-ctl --help lists the verbs");
    }
    command.verb = static_cast<Verb>(verb - std::begin(verbs));
    command.arguments.assign(words.begin() + 1, words.end());
    if (const std::string problem = argument_problem(*verb, command.arguments.size());
        !problem.empty()) {
        throw ControlError(problem);
    }
    return command;
}

memlab::report::Style style() {
    return memlab::report::style_for(STDOUT_FILENO, memlab::report::ColorMode::automatic, false);
}

/// Flushed, and checked: a full disk is told.
int print(const std::string& text, int code) {
    std::cout << text << std::flush;
    if (!std::cout) {
        throw ControlError("cannot write to standard output; is the disk full?");
    }
    return code;
}

std::string list(const std::vector<LiveStatus>& processes, bool json) {
    return json ? list_json(processes) : list_text(processes, style());
}

/// The reply as text. May throw ControlError: it cannot be read.
std::string text_of(pid_t process, const Command& command, const std::string& document) {
    std::string problem;
    switch (*command.verb) {
        case Verb::status:
            if (const auto status = read_status(document, &problem)) {
                return status_text(process, *status, style());
            }
            break;
        case Verb::sites:
        case Verb::nn_modules:
            if (const auto interval = read_interval(document, &problem)) {
                const bool since_mark =
                    std::find(command.arguments.begin(), command.arguments.end(), "since-mark") !=
                    command.arguments.end();
                return command.verb == Verb::nn_modules
                           ? nn_modules_text(*interval, style())
                           : sites_text(process, *interval, since_mark, style());
            }
            break;
        case Verb::pool:
            if (const auto pool = read_pool(document, &problem)) {
                return pool_text(*pool, style());
            }
            break;
        default:
            if (const auto action = read_action(document, &problem)) {
                return memlab::report::printable(action->text, false) + "\n";
            }
            break;
    }
    throw ControlError(memlab::report::printable(problem, false));
}

std::vector<pid_t> targets_of(const Command& command) {
    if (command.target.empty()) {
        return {};
    }
    if (const pid_t process = process_id(command.target)) {
        return {process};
    }
    return processes_of_run(command.target);
}

int ask_all(const std::vector<pid_t>& processes, const Command& command, bool json) {
    int code = EXIT_SUCCESS;
    std::string out;
    std::vector<LiveStatus> replies;
    for (const pid_t process : processes) {
        LiveReply reply = ask_process(process, *command.verb, command.arguments);
        if (!reply.ok()) {
            print_diagnostic(reply.problem);
            code = exit_failed;
        }
        if (json) {
            replies.push_back({process, {}, reply.problem, reply.document});
        } else if (reply.ok()) {
            const bool many = processes.size() > 1 && *command.verb != Verb::status;
            out += many ? (out.empty() ? "" : "\n") + ("process " + std::to_string(process)) + "\n"
                        : (out.empty() ? "" : "\n");
            out += text_of(process, command, reply.document);
        }
    }
    if (json) {
        out = processes.size() == 1 ? replies.front().document : list_json(replies);
    }
    return print(out, code);
}

bool asks_for_holders(const ControlArguments& arguments) {
    return !arguments.words.empty() && arguments.words.front() == holders_verb;
}

int run(const ControlArguments& arguments) {
    if (asks_for_holders(arguments) && arguments.words.size() > 1) {
        throw ControlError("holders takes no arguments, except --device N");
    }
    if (asks_for_holders(arguments)) {
        const auto device = arguments.has_device ? std::optional(arguments.device) : std::nullopt;
        return print(holders_text(device, arguments.json, style()), EXIT_SUCCESS);
    }
    Command command = command_of(arguments);
    std::vector<pid_t> processes = targets_of(command);
    if (processes.empty()) {
        const std::vector<LiveStatus> all = all_states();
        if (all.empty()) {
            throw ControlError(
                "no program of yours runs under memlab now (it has to have used CUDA); start one "
                "with memlab-run");
        }
        if (!command.verb) {
            return print(list(all, arguments.json), EXIT_SUCCESS);
        }
        if (all.size() > 1) {
            print_diagnostic("several programs run under memlab: name one by its process id");
            return print(list(all, arguments.json), exit_failed);
        }
        processes = {all.front().process};
    }
    command.verb = command.verb.value_or(Verb::status);
    return ask_all(processes, command, arguments.json);
}

int print_completion(const ControlArguments& arguments) {
    ControlArguments unused;
    CLI::App app(description, "memlab-ctl");
    define(app, unused);
    const std::string text = control_completion(arguments.completion, shape_of(app));
    if (text.empty()) {
        throw ControlError("--completion takes bash, zsh, fish or man, not " +
                           arguments.completion);
    }
    return print(text, EXIT_SUCCESS);
}

ControlArguments parse(int argc, char** argv) {
    ControlArguments arguments;
    CLI::App app(description, "memlab-ctl");
    define(app, arguments);
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        if (error.get_exit_code() == 0) {
            const int code = app.exit(error);
            if (app.count("--help") != 0) {
                std::cout << "\nVerbs:\n" << verbs_help();
            }
            std::exit(code);
        }
        throw ControlError(std::string(error.what()) + "; memlab-ctl --help shows the usage");
    }
    arguments.completes = app.count("--completion") != 0;
    arguments.has_device = app.count("--device") != 0;
    return arguments;
}

}  // namespace

int main(int argc, char** argv) {
    set_program_name("memlab-ctl");
    std::signal(SIGXFSZ, SIG_IGN);  // past a file size limit: one line, as of a full disk
    try {
        const ControlArguments arguments = parse(argc, argv);
        return arguments.completes ? print_completion(arguments) : run(arguments);
    } catch (const ControlError& error) {
        print_diagnostic(error.what());
        return exit_failed;
    }
}
