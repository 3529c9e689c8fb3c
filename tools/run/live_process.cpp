#include "tools/run/live_process.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <sstream>
#include <thread>
#include <vector>

#include "tools/doctor/small_files.hpp"

namespace memlab::tools {

namespace {

std::string folder_of(pid_t pid) {
    return "/proc/" + std::to_string(pid);
}

/// From the state on; empty if unavailable.
std::vector<std::string> stat_of(pid_t pid) {
    return process_stat(folder_of(pid)).fields;
}

std::uint64_t own_pid_namespace() {
    struct stat status {};
    return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

template <class Number>
Number number_of(const std::string& text) {
    Number number = 0;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
}

constexpr std::size_t state_field = 0;
constexpr std::size_t parent_field = 1;
constexpr std::size_t flags_field = 6;
constexpr std::size_t start_field = 19;

/// Whether the process is exiting but not a zombie yet: the kernel is tearing it down, or a SIGKILL
/// is pending.
bool is_ending(pid_t pid, const std::vector<std::string>& stat) {
    if (stat.size() <= start_field || stat[state_field] == "Z" || stat[state_field] == "X") {
        return false;
    }
    constexpr std::uint64_t exiting = 0x4;  // PF_EXITING
    if ((number_of<std::uint64_t>(stat[flags_field]) & exiting) != 0) {
        return true;
    }
    std::istringstream status(whole_file("/proc/" + std::to_string(pid) + "/status"));
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("SigPnd:") || line.starts_with("ShdPnd:")) {
            const std::uint64_t pending = std::strtoull(line.c_str() + 7, nullptr, 16);
            if ((pending >> (SIGKILL - 1) & 1) != 0) {
                return true;
            }
        }
    }
    return false;
}

}  // namespace

bool still_runs(const RunFiles& files) {
    if (files.pid_namespace != 0 && files.pid_namespace != own_pid_namespace()) {
        return false;
    }
    std::vector<std::string> stat = stat_of(files.pid);
    // If it was killed along with the command it may still be exiting, which takes longer the more
    // memory it has. Wait for that.
    constexpr auto longest = std::chrono::seconds(20);
    const auto until = std::chrono::steady_clock::now() + longest;
    while (is_ending(files.pid, stat) && std::chrono::steady_clock::now() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        stat = stat_of(files.pid);
    }
    if (stat.size() <= start_field) {
        // Without /proc.
        return files.start_ticks == 0 && (kill(files.pid, 0) == 0 || errno == EPERM);
    }
    const bool ended = stat[state_field] == "Z" || stat[state_field] == "X";
    return !ended && (files.start_ticks == 0 ||
                      number_of<std::uint64_t>(stat[start_field]) == files.start_ticks);
}

LiveProcess describe_live(pid_t pid, bool with_arguments) {
    LiveProcess process;
    const std::vector<std::string> stat = stat_of(pid);
    if (stat.size() > parent_field) {
        process.parent = number_of<pid_t>(stat[parent_field]);
        process.command = command_line_of(folder_of(pid), with_arguments);
        process.parent_command = command_line_of(folder_of(process.parent), with_arguments);
    }
    return process;
}

}  // namespace memlab::tools
