#include "tools/follow/process_log.hpp"

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <system_error>

#include "tools/live/client.hpp"
#include "tools/live/documents.hpp"
#include "tools/live/find_processes.hpp"
#include "tools/live/run_processes.hpp"

namespace memlab::tools {

namespace {

/// What is available of a process that writes no event log.
std::string without_log(const LiveStatus& state) {
    const std::string pid = std::to_string(state.process);
    return "process " + pid + " writes no event log that could be followed" +
           (state.status->recording
                ? "; memlab-ctl " + pid + " sites and memlab-top show what it holds now"
                : " (MEMLAB_RECORD=off); memlab-ctl " + pid +
                      " status and memlab-top show what it holds now");
}

}  // namespace

std::string log_of_process(pid_t process, std::string* problem) {
    LiveConnection connection(process, std::chrono::seconds(10));
    if (!connection.connected()) {
        *problem = connection.problem();
        return {};
    }
    const LiveStatus state = ask_status(connection);
    if (!state.status) {
        *problem = state.problem;
        return {};
    }
    if (!state.status->log) {
        *problem = without_log(state);
        return {};
    }
    std::string log = *state.status->log;
    if (!log.starts_with('/')) {
        log = working_directory_of(process) + "/" + log;
    }
    const std::string root = "/proc/" + std::to_string(process) + "/root";
    return shares_files(process) ? log : root + log;
}

std::string process_without_log(const std::string& folder) {
    std::error_code problem;
    const std::string path = std::filesystem::canonical(folder, problem).string();
    for (const LiveStatus& state : all_states()) {
        if (!problem && state.status && !state.status->log && records_into(state, path)) {
            return without_log(state);
        }
    }
    return {};
}

pid_t process_meant_by(const std::string& argument) {
    return access(argument.c_str(), F_OK) != 0 ? process_id(argument) : 0;
}

}  // namespace memlab::tools
