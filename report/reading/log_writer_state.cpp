// Who writes an event log, and until when.
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <fstream>
#include <iterator>
#include <string>

#include "report/reading/log_report.hpp"
#include "report/text/units.hpp"

namespace memlab::report {

namespace {

bool is_this_host(const std::string& host) {
    std::array<char, HOST_NAME_MAX + 1> name{};
    return host.empty() || (gethostname(name.data(), name.size() - 1) == 0 && host == name.data());
}

/// Whether it has ended, and only its parent has not waited for it yet.
bool is_zombie(const std::string& process) {
    std::ifstream file(process + "/stat");
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    const std::size_t name_end = text.rfind(')');  // a name may have anything in it
    return name_end != std::string::npos && text.compare(name_end, 3, ") Z") == 0;
}

}  // namespace

LogWriterState find_log_writer(const struct stat& log, std::uint64_t pid, const std::string& host) {
    using enum LogWriterState;
    const std::string process = "/proc/" + std::to_string(pid);
    // A process of another host, or of a container, may have the id of one that is here.
    const LogWriterState otherwise = is_this_host(host) ? gone : unknown;
    DIR* const folder = opendir((process + "/fd").c_str());
    if (folder == nullptr) {
        const bool hidden = errno == EACCES && !is_zombie(process);
        return hidden ? unknown : otherwise;
    }
    bool found = false;
    for (const dirent* entry = readdir(folder); entry != nullptr && !found;
         entry = readdir(folder)) {
        struct stat open {};
        found = fstatat(dirfd(folder), entry->d_name, &open, 0) == 0 && open.st_dev == log.st_dev &&
                open.st_ino == log.st_ino;
    }
    closedir(folder);
    return found ? writing : otherwise;
}

bool is_being_written(const std::string& log, std::uint64_t pid) {
    struct stat file {};
    return stat(log.c_str(), &file) == 0 &&
           find_log_writer(file, pid, {}) == LogWriterState::writing;
}

void add_time_until_now(model::Process& process) {
    process.recording = true;
    const std::uint64_t now = wall_time_now_ns();
    if (now > process.start_wall_ns + process.duration_ns) {
        process.recorded_ns = process.duration_ns;
        process.duration_ns = now - process.start_wall_ns;
    }
}

}  // namespace memlab::report
