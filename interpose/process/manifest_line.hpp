// What a process tells the memlab-run that it belongs to, in one line of the run's manifest: its
// files, and what only it knows while it lives and memlab-run needs later. A process id alone is
// used again, and is another one in another container; and a process without CUDA (a shell, a
// launcher) writes nothing, but stands between those that do.
#pragma once

#include <string>

namespace memlab::interpose {

/// The line for this process, its newline included:
///   pid <TAB> log <TAB> report <TAB> pid namespace <TAB> start time [<TAB> pid=command]...
/// The namespace is the number of /proc/self/ns/pid, the start time that of /proc/self/stat (clock
/// ticks since boot), each 0 where unknown; then the ancestors, the parent first, as far as they
/// can be seen, at most 16, each command at most 160 bytes without control characters;
/// `with_arguments` or the program's name alone.
std::string manifest_line(const std::string& log, const std::string& report, bool with_arguments);

}  // namespace memlab::interpose
