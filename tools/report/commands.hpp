// The commands of memlab-report. Each takes its arguments like main(), with argv[0] the command's
// name, and returns the exit code: 0, or 2 on errors; check_command() also 1.
#pragma once

#include <string>
#include <vector>

namespace memlab::tools {

/// A command other than the summary. A file with such a name must be given as ./whatif.
struct Command {
    std::string name;
    int (*run)(int argc, char** argv);  ///< argv[0] is the name; returns the exit code
    std::string what;                   ///< for --help: at most 50 characters
};

/// A summary that fits one screen; the default command. `commands`: the list of the other commands,
/// for --help.
int summary_command(int argc, char** argv, const char* commands);

/// Memory by call site, as a table or as a call tree.
int sites_command(int argc, char** argv);
int tree_command(int argc, char** argv);

/// Memory by source line: annotated source.
int lines_command(int argc, char** argv);

/// Memory that was never freed or grows from step to step.
int leaks_command(int argc, char** argv);

/// Details of failed allocations.
int oom_command(int argc, char** argv);

/// What took the memory of each GPU beside the allocations, too.
int ledger_command(int argc, char** argv);

/// Memory over time, over an interval, and the live allocations at a moment.
int timeline_command(int argc, char** argv);

/// Allocations by size and by lifetime.
int histogram_command(int argc, char** argv);

/// A page for a browser.
int html_command(int argc, char** argv);

/// The layout of memlab's pool.
int pool_command(int argc, char** argv);

/// Patterns that waste memory, with the savings to expect.
int inefficiencies_command(int argc, char** argv);

/// Compares two recordings.
int diff_command(int argc, char** argv);

/// Checks limits, for CI: 0 if all are kept, 1 if one is exceeded, 2 on errors.
int check_command(int argc, char** argv);

/// Compares the ranks of a run.
int merge_command(int argc, char** argv);

/// Replays a recording with other allocators, or with memlab's pool.
int whatif_command(int argc, char** argv);
int replay_command(int argc, char** argv);

/// Converts a recording to other programs' formats.
int export_command(int argc, char** argv);

/// Commands on recording files.
int validate_command(int argc, char** argv);
int recover_command(int argc, char** argv);
int symbolize_command(int argc, char** argv);

/// Shell completion and the man page of `commands`.
int completion_command(int argc, char** argv, const std::vector<Command>& commands);

}  // namespace memlab::tools
