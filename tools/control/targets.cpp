#include "tools/control/targets.hpp"

#include <filesystem>

#include "tools/live/run_processes.hpp"

namespace memlab::tools {

std::vector<pid_t> processes_of_run(const std::string& folder) {
    std::error_code problem;
    std::filesystem::path path = std::filesystem::canonical(folder, problem);
    if (problem || !std::filesystem::is_directory(path, problem)) {
        throw ControlError(folder + ": no such folder; give a run's folder or a process id");
    }
    std::vector<pid_t> processes;
    for (const LiveStatus& state : all_states()) {
        if (records_into(state, path.string())) {
            processes.push_back(state.process);
        }
    }
    if (processes.empty()) {
        throw ControlError("no running process records into " + folder);
    }
    return processes;
}

}  // namespace memlab::tools
