// memlab-report export: a recording in a format that another program reads.
#pragma once

namespace memlab::tools {

/// argv[0] is "export"; returns the exit code.
int export_command(int argc, char** argv);

}  // namespace memlab::tools
