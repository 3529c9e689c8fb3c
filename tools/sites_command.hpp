// memlab-report sites and tree: who took the memory, as a table of places or as a tree of calls.
#pragma once

namespace memlab::tools {

/// argv[0] is the command's name. The exit code.
int sites_command(int argc, char** argv);
int tree_command(int argc, char** argv);

}  // namespace memlab::tools
