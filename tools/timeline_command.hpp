// memlab-report timeline: memory over time, any stretch of it, and what was live at a moment.
#pragma once

namespace memlab::tools {

/// argv[0] is "timeline"; returns the exit code.
int timeline_command(int argc, char** argv);

}  // namespace memlab::tools
