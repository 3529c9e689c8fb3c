// memlab-report: shows, compares and converts recordings.
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "report/text/progress.hpp"
#include "tools/diagnostics.hpp"
#include "tools/report/commands.hpp"
#include "tools/report/debuginfod_option.hpp"
#include "tools/report/run_command.hpp"
#include "tools/report/subcommand.hpp"

namespace memlab::tools {

const std::vector<Command>& all_commands() {
#define GROUP(name, title, page) constexpr const char* name##_title = title;
#define COMMAND(name, group, what, page, question) static_assert(sizeof what <= 51);
#include "tools/report/commands.inc"
#undef COMMAND
#undef GROUP
#define GROUP(name, title, page)
#define COMMAND(name, group, what, page, question) \
    {command_name(#name), name##_command, group##_title, what},
    static const std::vector<Command> commands = {
#include "tools/report/commands.inc"
    };
#undef COMMAND
#undef GROUP
    return commands;
}

std::string list_of_commands() {
    std::string text = "Commands (memlab-report COMMAND --help says more):\n";
    std::string group;
    for (const Command& command : all_commands()) {
        if (command.group != group) {
            group = command.group;
            text.append(" ").append(group).append("\n");
        }
        text.append("  ").append(command.name).append(16 - command.name.size(), ' ');
        text.append(command.what).append("\n");
    }
    return text;
}

}  // namespace memlab::tools

namespace {

using memlab::tools::all_commands;
using memlab::tools::Command;

/// The command that a word resembles which is neither a command nor a file; empty: none.
std::string closest_command(std::string_view word) {
    const bool bare = !word.empty() && word.find_first_of("./") == std::string_view::npos &&
                      word.front() != '-' && access(std::string(word).c_str(), F_OK) != 0;
    std::vector<std::string> names;
    for (const Command& command : all_commands()) {
        names.emplace_back(command.name);
    }
    return bare ? memlab::tools::closest(std::string(word), names) : "";
}

int run_command(int argc, char** argv) {
    const std::string_view name = argc > 1 ? argv[1] : "";
    for (const Command& command : all_commands()) {
        if (name == command.name) {
            return command.run(argc - 1, argv + 1);
        }
    }
    const std::string meant = closest_command(name);
    if (!meant.empty()) {
        return memlab::tools::fail(std::string(name) + ": no command and no file; did you mean " +
                                   meant + "? memlab-report --help lists the commands");
    }
    return all_commands().front().run(argc, argv);
}

}  // namespace

int main(int argc, char** argv) {
    // Do not profile child processes.
    unsetenv("LD_PRELOAD");
    std::signal(SIGXFSZ, SIG_IGN);  // past a file size limit: one line, as of a full disk
    memlab::tools::set_program_name("memlab-report");
    memlab::report::show_progress_on(memlab::report::terminal_for_progress());
    int code = EXIT_SUCCESS;
    try {
        code = run_command(argc, argv);
    } catch (const memlab::tools::Ended& ended) {
        code = ended.code;
    }
    memlab::tools::note_debuginfod();
    return code;
}
