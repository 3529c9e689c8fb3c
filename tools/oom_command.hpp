// memlab-report oom: the allocations that failed, in depth.
#pragma once

namespace memlab::tools {

/// `memlab-report oom FILE...`; argv[0] is "oom". Returns the exit code.
int oom_command(int argc, char** argv);

}  // namespace memlab::tools
