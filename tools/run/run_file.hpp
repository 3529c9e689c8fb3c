// The run's description, memlab-run.<host>.<pid>.json: beside the reports of a run with its own
// folder (memlab-run -o FOLDER/). It has what only memlab-run knows: the command and its exit
// status, the processes, their ancestors, and which still run. Format: model/run_file.hpp.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "model/run_file.hpp"
#include "tools/run/launch.hpp"
#include "tools/run/live_process.hpp"
#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// A process of the run in which memlab was active.
struct RunProcess {
    RunFiles files;
    bool recovered = false;        ///< memlab-run made its report from the log
    bool running = false;          ///< after the command had ended
    std::uint64_t held_bytes = 0;  ///< if running: reserved bytes at that time, by its log
    model::Process process;        ///< empty if neither report nor log could be read
};

/// The file's JSON text: `run` with the command's end and the processes added. `folder`: the run's.
std::string render_run_file(model::RunFile run, const std::string& folder,
                            const LaunchResult& result, const std::vector<RunProcess>& processes);

/// Writes it to the run's folder, under an unused name. Returns the error, or an empty text.
std::string write_run_file(const std::string& folder, const std::string& text);

/// The run's own folder by `pattern` (MEMLAB_OUTPUT, absolute): ends with '/' and is the same for
/// every process on this host. Empty: none.
std::string run_folder(const std::string& pattern);

/// `pattern` (absolute), with a '/' at its end where it is a folder that is there.
std::string as_folder_if_there(const std::string& pattern);

}  // namespace memlab::tools
