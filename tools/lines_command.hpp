// memlab-report lines: the annotated source.
#pragma once

namespace memlab::tools {

/// `memlab-report lines SOURCE[:FUNCTION] FILE...`; argv[0] is "lines". Returns the exit code.
int lines_command(int argc, char** argv);

}  // namespace memlab::tools
