// The commands of memlab-report. Each takes its arguments as main() does, argv[0] being the
// command's name, and returns the exit code: 0, or 2 when it cannot do what was asked; check
// also 1.
#pragma once

namespace memlab::tools {

/// All that matters on one screen; also without a command's name. `commands` is the list of the
/// other commands, for --help.
int summary_command(int argc, char** argv, const char* commands);

/// Who took the memory, as a table of places or as a tree of calls.
int sites_command(int argc, char** argv);
int tree_command(int argc, char** argv);

/// The annotated source.
int lines_command(int argc, char** argv);

/// What was never freed, and what grows from step to step.
int leaks_command(int argc, char** argv);

/// The allocations that failed, in depth.
int oom_command(int argc, char** argv);

/// Memory over time, any stretch of it, and what was live at a moment.
int timeline_command(int argc, char** argv);

/// How memlab's pool lay in memory.
int pool_command(int argc, char** argv);

/// What a program could do with less memory.
int inefficiencies_command(int argc, char** argv);

/// Two recordings side by side.
int diff_command(int argc, char** argv);

/// The gate for CI: 0 when every limit is kept, 1 when one is exceeded, 2 when it cannot be told.
int check_command(int argc, char** argv);

/// A run's ranks side by side.
int merge_command(int argc, char** argv);

/// A recorded program through other allocators, and through memlab's own again.
int whatif_command(int argc, char** argv);
int replay_command(int argc, char** argv);

/// A recording in a format that another program reads.
int export_command(int argc, char** argv);

/// The files of recordings themselves.
int validate_command(int argc, char** argv);
int recover_command(int argc, char** argv);
int symbolize_command(int argc, char** argv);

}  // namespace memlab::tools
