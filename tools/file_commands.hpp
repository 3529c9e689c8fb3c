// memlab-report's commands on the files of recordings themselves: validate, recover, symbolize.
#pragma once

namespace memlab::tools {

/// `argv[0]` is the command's name; the exit code.
int validate_command(int argc, char** argv);
int recover_command(int argc, char** argv);
int symbolize_command(int argc, char** argv);

}  // namespace memlab::tools
