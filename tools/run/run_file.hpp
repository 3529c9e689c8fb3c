// The file that describes a run as a whole: memlab-run.<host>.<pid>.json, beside the reports of a
// run that has a folder of its own (memlab-run -o FOLDER/). The reports say what each process did;
// this says what only memlab-run saw: the command and its end, which processes there were, who was
// between them, and which still run. docs/report-format.md describes its members.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "report/model.hpp"
#include "tools/run/launch.hpp"
#include "tools/run/live_process.hpp"
#include "tools/run/run_manifest.hpp"

namespace memlab::tools {

/// One process of the run in which memlab was active.
struct RunProcess {
    RunFiles files;
    bool recovered = false;        ///< memlab-run wrote its report, from the log
    bool running = false;          ///< when the command had ended
    std::uint64_t held_bytes = 0;  ///< reserved then, by its log; where it is running
    report::Process process;       ///< empty where neither report nor log could be read
};

struct RunDescription {
    std::string memlab_version;
    std::string folder;  ///< absolute, ends with '/'; empty: the run has none
    std::string working_directory;
    std::vector<std::string> command;
    std::vector<std::pair<std::string, std::string>> replaced;  ///< what --replace set
    std::uint64_t start_wall_ns = 0;
    std::uint64_t end_wall_ns = 0;
};

/// The JSON text.
std::string render_run_file(const RunDescription& run, const LaunchResult& result,
                            const std::vector<RunProcess>& processes);

/// Writes render_run_file's text into the run's folder under a name that was free; the error, or
/// empty.
std::string write_run_file(const RunDescription& run, const std::string& text);

/// The folder of which `pattern` (MEMLAB_OUTPUT, absolute) makes the run's own: it ends in '/' and
/// is the same for every process on this host. Empty: none.
std::string run_folder(const std::string& pattern);

}  // namespace memlab::tools
