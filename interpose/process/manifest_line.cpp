#include "interpose/process/manifest_line.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "interpose/options/small_file.hpp"
#include "model/manifest_field.hpp"

namespace memlab::interpose {
namespace {

constexpr int max_ancestors = 16;
constexpr std::size_t max_command = 160;

/// The first 1024 bytes of a file in /proc.
std::string read_start(const std::string& path) {
    return read_small_file(path, 1024);
}

/// The nth field of /proc/PID/stat, numbered as in proc(5), from the 4th on. Earlier fields may
/// contain anything, parentheses and blanks included.
std::string stat_field(const std::string& stat, int number) {
    std::size_t at = stat.rfind(')');
    for (int field = 2; at != std::string::npos && field < number; ++field) {
        at = stat.find(' ', at + 1);
    }
    if (at == std::string::npos) {
        return "0";
    }
    return stat.substr(at + 1, stat.find_first_of(" \n", at + 1) - at - 1);
}

/// The command line of a process as one line; its name if there is none (kernel threads, other
/// users' processes).
std::string read_command(const std::string& folder, const std::string& stat, bool with_arguments) {
    std::string command = read_start(folder + "/cmdline");
    if (!with_arguments) {
        command.resize(std::min(command.size(), command.find('\0')));
    }
    if (command.empty()) {
        const std::size_t open = stat.find('(');
        const std::size_t close = stat.rfind(')');
        if (open != std::string::npos && close != std::string::npos && open < close) {
            command = stat.substr(open + 1, close - open - 1);
        }
    }
    while (!command.empty() && command.back() == '\0') {
        command.pop_back();
    }
    command.resize(std::min(command.size(), max_command));
    for (char& c : command) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            c = ' ';
        }
    }
    return command;
}

std::string pid_namespace() {
    std::array<char, 64> target;
    const ssize_t length = readlink("/proc/self/ns/pid", target.data(), target.size());
    const std::string_view text(target.data(), length < 0 ? 0 : static_cast<std::size_t>(length));
    const std::size_t open = text.find('[');
    const std::size_t close = text.find(']');
    return open == std::string_view::npos || close == std::string_view::npos || close < open
               ? "0"
               : std::string(text.substr(open + 1, close - open - 1));
}

}  // namespace

std::string manifest_line(const std::string& log, const std::string& report, bool with_arguments) {
    const std::string own_stat = read_start("/proc/self/stat");
    std::string line = std::to_string(getpid()) + "\t" + model::escaped_field(log) + "\t" +
                       model::escaped_field(report) + "\t" + pid_namespace() + "\t" +
                       stat_field(own_stat, 22);
    std::string pid = std::to_string(getppid());
    for (int i = 0; i < max_ancestors && pid != "0"; ++i) {
        const std::string folder = "/proc/" + pid;
        const std::string stat = read_start(folder + "/stat");
        if (stat.empty()) {
            break;  // ended, or not visible
        }
        line += "\t" + pid + "=" + read_command(folder, stat, with_arguments);
        pid = stat_field(stat, 4);
    }
    return line + "\n";
}

}  // namespace memlab::interpose
