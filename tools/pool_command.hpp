// memlab-report pool: how memlab's pool lay in memory.
#pragma once

namespace memlab::tools {

/// `memlab-report pool FILE...`; argv[0] is "pool". Returns the exit code.
int pool_command(int argc, char** argv);

}  // namespace memlab::tools
