// memlab-report inefficiencies: what a program could do with less memory.
#pragma once

namespace memlab::tools {

/// `memlab-report inefficiencies FILE...`; argv[0] is "inefficiencies". Returns the exit code.
int inefficiencies_command(int argc, char** argv);

}  // namespace memlab::tools
