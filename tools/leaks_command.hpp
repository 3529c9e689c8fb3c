// memlab-report leaks: what was never freed, and what grows from step to step.
#pragma once

namespace memlab::tools {

/// argv[0] is "leaks". The exit code.
int leaks_command(int argc, char** argv);

}  // namespace memlab::tools
