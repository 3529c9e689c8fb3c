// memlab-report check: the gate for CI.
#pragma once

namespace memlab::tools {

/// `argv[0]` is "check". The exit code: 0 every limit is kept, 1 one is exceeded, 2 it cannot be
/// told.
int check_command(int argc, char** argv);

}  // namespace memlab::tools
