// memlab-report diff: two recordings side by side.
#pragma once

namespace memlab::tools {

/// argv[0] is "diff". The exit code.
int diff_command(int argc, char** argv);

}  // namespace memlab::tools
