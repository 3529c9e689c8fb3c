// memlab-report: shows, compares and converts recordings.
#include <unistd.h>

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

namespace {

using memlab::tools::Command;

int complete(int argc, char** argv);

const std::vector<Command> commands = {
    {"check", memlab::tools::check_command, "Limits for CI: exit code 1 if one is exceeded"},
    {"completion", complete, "Completion for bash, zsh, fish; the man page"},
    {"diff", memlab::tools::diff_command, "Two recordings side by side"},
    {"export", memlab::tools::export_command, "For other programs: folded stacks, pprof, ..."},
    {"histogram", memlab::tools::histogram_command,
     "Which sizes are allocated, and how long they live"},
    {"html", memlab::tools::html_command, "A page for a browser, to explore and to send"},
    {"inefficiencies", memlab::tools::inefficiencies_command,
     "What could be done with less memory"},
    {"leaks", memlab::tools::leaks_command, "What was never freed, or grows from step to step"},
    {"ledger", memlab::tools::ledger_command,
     "Every byte of each GPU: contexts, code and the rest"},
    {"lines", memlab::tools::lines_command, "The annotated source: memory by line"},
    {"merge", memlab::tools::merge_command, "The ranks of a run side by side"},
    {"oom", memlab::tools::oom_command, "Allocations that failed, and why, in depth"},
    {"pool", memlab::tools::pool_command, "The pool's segments as a picture, and its figures"},
    {"recover", memlab::tools::recover_command, "A report of a damaged or cut-off event log"},
    {"replay", memlab::tools::replay_command, "A recorded program through the same pool again"},
    {"sites", memlab::tools::sites_command, "Memory by call site, as a table"},
    {"symbolize", memlab::tools::symbolize_command, "A report with the names of functions in it"},
    {"timeline", memlab::tools::timeline_command, "Memory over time, and what was live when"},
    {"tree", memlab::tools::tree_command, "The calls that led to an allocation, up or down"},
    {"validate", memlab::tools::validate_command, "Whether reports and event logs are sound"},
    {"whatif", memlab::tools::whatif_command, "A recorded program through other allocators"},
};

std::string list_of_commands();

int summarize(int argc, char** argv) {
    return memlab::tools::summary_command(argc, argv, list_of_commands().c_str());
}

int complete(int argc, char** argv) {
    std::vector<Command> all = {{"summary", summarize, "One screen: peaks, timeline, who held it"}};
    all.insert(all.end(), commands.begin(), commands.end());
    return memlab::tools::completion_command(argc, argv, all);
}

std::string list_of_commands() {
    std::string text = "Commands (memlab-report COMMAND --help says more):\n";
    for (const Command& command : commands) {
        text.append("  ").append(command.name).append(16 - command.name.size(), ' ');
        text.append(command.what).append("\n");
    }
    return text;
}

/// The command that a word resembles which is neither a command nor a file; empty: none.
std::string closest_command(std::string_view word) {
    const bool bare = !word.empty() && word.find_first_of("./") == std::string_view::npos &&
                      word.front() != '-' && access(std::string(word).c_str(), F_OK) != 0;
    std::vector<std::string> names = {"summary"};
    for (const Command& command : commands) {
        names.emplace_back(command.name);
    }
    return bare && word != "summary" ? memlab::tools::closest(std::string(word), names) : "";
}

int run_command(int argc, char** argv) {
    const std::string_view name = argc > 1 ? argv[1] : "";
    for (const Command& command : commands) {
        if (name == command.name) {
            return command.run(argc - 1, argv + 1);
        }
    }
    const std::string meant = closest_command(name);
    if (!meant.empty()) {
        return memlab::tools::fail(std::string(name) + ": no command and no file; did you mean " +
                                   meant + "? memlab-report --help lists the commands");
    }
    const int skipped = name == "summary" ? 1 : 0;
    return summarize(argc - skipped, argv + skipped);
}

}  // namespace

int main(int argc, char** argv) {
    // Do not profile child processes.
    unsetenv("LD_PRELOAD");
    memlab::tools::set_program_name("memlab-report");
    memlab::report::show_progress_on(memlab::report::terminal_for_progress());
    const int code = run_command(argc, argv);
    memlab::tools::note_debuginfod();
    return code;
}
