#include "tools/live/run_processes.hpp"

#include <chrono>
#include <filesystem>
#include <optional>

#include "tools/live/find_processes.hpp"

namespace memlab::tools {

std::vector<LiveStatus> all_states() {
    // Of a list, a process that is stopped is to hold up the others for this long at most.
    constexpr std::chrono::seconds patience(3);
    std::vector<LiveStatus> states;
    for (const pid_t process : find_live_processes()) {
        LiveConnection connection(process, patience);
        if (connection.connected()) {  // else a socket has the id of another process
            states.push_back(ask_status(connection));
        }
    }
    return states;
}

bool records_into(const LiveStatus& process, const std::string& folder) {
    if (!process.status) {
        return false;
    }
    const auto is_inside = [&](const std::optional<std::string>& file) {
        if (!file) {
            return false;
        }
        std::error_code problem;
        const std::filesystem::path parent =
            std::filesystem::weakly_canonical(std::filesystem::path(*file).parent_path(), problem);
        return !problem && parent == std::filesystem::path(folder);
    };
    return is_inside(process.status->report) || is_inside(process.status->log);
}

}  // namespace memlab::tools
