// memlab-report without a command's name, or with "summary": all that matters on one screen.
#pragma once

namespace memlab::tools {

/// `commands` is the list of the other commands, for --help. The exit code.
int summary_command(int argc, char** argv, const char* commands);

}  // namespace memlab::tools
