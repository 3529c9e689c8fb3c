#include "interpose/process/process_description.hpp"

#include <limits.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "interpose/driver/loaded_objects.hpp"
#include "interpose/options/small_file.hpp"
#include "model/rank_variables.hpp"
#include "own_version.hpp"
#include "profiler/clock.hpp"

namespace memlab::interpose {
namespace {

std::string read_proc_file(const std::string& path) {
    constexpr std::size_t most = std::size_t{1} << 20;
    return read_small_file(path, most);
}

// The tracer's name, when a debugger is attached: "TracerPid:\t123" in /proc/self/status.
std::string tracer_name() {
    const std::string status = read_proc_file("/proc/self/status");
    const std::size_t at = status.find("TracerPid:");
    if (at == std::string::npos) {
        return {};
    }
    // from_chars: with newer headers strtol would require a newer glibc.
    const std::size_t digits = status.find_first_not_of(" \t", at + std::strlen("TracerPid:"));
    int pid = 0;
    if (digits != std::string::npos) {
        std::from_chars(status.data() + digits, status.data() + status.size(), pid);
    }
    return pid <= 0 ? std::string() : read_proc_file("/proc/" + std::to_string(pid) + "/comm");
}

bool is_loaded(std::string_view library) {
    unsigned long long loads = 0;
    return find_loaded_object(&loads, [library](const char* file) { return file == library; });
}

}  // namespace

trace::ProcessInfo describe_process(bool started_late, bool with_arguments) {
    trace::ProcessInfo process;
    process.pid = static_cast<std::uint32_t>(getpid());
    process.parent_pid = static_cast<std::uint32_t>(getppid());
    std::string path(PATH_MAX, '\0');
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
    if (length > 0) {
        process.executable.assign(path, 0, static_cast<std::size_t>(length));
    }
    const std::string arguments = read_proc_file("/proc/self/cmdline");
    for (std::size_t begin = 0; begin < arguments.size();) {
        const std::size_t end = arguments.find('\0', begin);
        process.arguments.push_back(arguments.substr(begin, end - begin));
        if (end == std::string::npos || !with_arguments) {
            break;  // the first is the program's name
        }
        begin = end + 1;
    }
    char host[HOST_NAME_MAX + 1] = "";
    gethostname(host, sizeof(host) - 1);
    process.host = host;
    process.memlab_version = own_version;
    process.start_wall_ns = profiler::wall_ns();
    process.start_monotonic_ns = profiler::monotonic_ns();
    process.started_late = started_late;
    const auto add_variables = [&process](const auto& names) {
        for (const char* name : names) {
            if (const char* value = std::getenv(name)) {
                process.ranks.emplace_back(name, value);
            }
        }
    };
    add_variables(model::rank_variables);
    add_variables(model::local_rank_variables);
    add_variables(model::world_size_variables);
    return process;
}

std::string find_rank(const trace::ProcessInfo& process) {
    for (const char* variable : model::rank_variables) {
        for (const auto& [name, value] : process.ranks) {
            if (name == variable) {
                return value;
            }
        }
    }
    return "0";
}

std::string active_tool() {
    if (is_loaded("libsanitizer-collection.so") || is_loaded("libsanitizer-public.so")) {
        return "compute-sanitizer";
    }
    return tracer_name().find("cuda-gdb") != std::string::npos ? "cuda-gdb" : "";
}

std::string reason_not_to_pool() {
    const std::string tool = active_tool();
    return tool.empty() ? tool
                        : tool +
                              " is active: recording without pooling, so that it sees each "
                              "allocation";
}

}  // namespace memlab::interpose
