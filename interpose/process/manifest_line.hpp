// A process's line in the manifest of its memlab-run: its output files, and facts that are only
// known while it lives. Process ids are reused and differ between containers, and a process without
// CUDA (a shell, a launcher) writes no line but may be the parent of one that does.
#pragma once

#include <string>

namespace memlab::interpose {

/// The line for this process, including the newline:
///   pid <TAB> log <TAB> report <TAB> pid namespace <TAB> start time [<TAB> pid=command]...
/// The namespace is the number in /proc/self/ns/pid, the start time that in /proc/self/stat (clock
/// ticks since boot), each 0 if unknown; then the visible ancestors, the parent first, at most 16,
/// each command at most 160 bytes without control characters; `with_arguments` false: program names
/// only.
std::string manifest_line(const std::string& log, const std::string& report, bool with_arguments);

}  // namespace memlab::interpose
