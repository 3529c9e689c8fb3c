// memlab-report whatif and memlab-report replay: a recorded program through other allocators, and
// through the very same pool again.
#pragma once

namespace memlab::tools {

/// `memlab-report whatif LOG ...`; argv[0] is "whatif". Returns the exit code.
int whatif_command(int argc, char** argv);

/// `memlab-report replay LOG...`; argv[0] is "replay". Returns the exit code.
int replay_command(int argc, char** argv);

}  // namespace memlab::tools
