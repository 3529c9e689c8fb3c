// The commands of memlab-report, which commands.inc lists. Each takes its arguments like main(),
// with argv[0] the command's name, and returns the exit code: 0, or 2 on errors; check_command()
// also 1.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

namespace memlab::tools {

#define GROUP(name, title, page)
#define COMMAND(name, group, what, page, question) int name##_command(int argc, char** argv);
#include "tools/report/commands.inc"
#undef COMMAND
#undef GROUP

/// What the user calls a command of commands.inc.
inline std::string command_name(std::string name) {
    std::replace(name.begin(), name.end(), '_', '-');
    return name;
}

/// A file with such a name must be given as ./whatif.
struct Command {
    std::string name;
    int (*run)(int argc, char** argv);  ///< argv[0] is the name; returns the exit code
    std::string group;                  ///< the title above it in --help
    std::string what;                   ///< for --help: at most 50 characters
};

/// All of them, by group. The first one is the default.
const std::vector<Command>& all_commands();

/// What --help says of them.
std::string list_of_commands();

}  // namespace memlab::tools
