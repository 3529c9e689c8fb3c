#include "interpose/process/output_files.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "interpose/process/manifest_line.hpp"
#include "trace/own_descriptor.hpp"

namespace memlab::interpose {
namespace {

constexpr const char* default_name = "memlab.%e.%p.json";
constexpr int max_attempts = 10000;

// A value must not escape the folder that the pattern names.
std::string as_file_name(const std::string& text) {
    std::string name = text;
    for (char& c : name) {
        if (c == '/') {
            c = '_';
        }
    }
    return name;
}

std::string expand(const std::string& pattern, const PatternValues& values) {
    std::string path;
    for (std::size_t i = 0; i < pattern.size(); ++i) {
        if (pattern[i] != '%' || i + 1 == pattern.size()) {
            path += pattern[i];
            continue;
        }
        switch (pattern[++i]) {
            case 'e':
                path += as_file_name(values.executable);
                break;
            case 'p':
                path += values.pid;
                break;
            case 'h':
                path += as_file_name(values.host);
                break;
            case 'r':
                path += as_file_name(values.rank);
                break;
            default:
                path += pattern[i];
                break;
        }
    }
    return path;
}

bool ends_with(const std::string& text, const char* suffix) {
    const std::size_t length = std::strlen(suffix);
    return text.size() >= length && text.compare(text.size() - length, length, suffix) == 0;
}

// The path without ".json", shared by report and log.
std::string report_stem(const std::string& report) {
    return ends_with(report, ".json") ? report.substr(0, report.size() - 5) : report;
}

bool is_folder(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool make_folders(const std::string& path, std::string* problem) {
    for (std::size_t slash = path.find('/', 1); slash != std::string::npos;
         slash = path.find('/', slash + 1)) {
        const std::string folder = path.substr(0, slash);
        if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
            const int error = errno;
            if (is_folder(folder)) {
                continue;  // exists, in a read-only parent
            }
            *problem = "cannot create folder " + folder + ": " + std::strerror(error);
            return false;
        }
    }
    return true;
}

// Whether all users share the folder: world-writable with the sticky bit, as /tmp.
bool is_shared_folder(const std::string& folder) {
    constexpr mode_t marks = S_ISVTX | S_IWOTH;
    struct stat status {};
    return stat(folder.c_str(), &status) == 0 && (status.st_mode & marks) == marks;
}

bool claim(const std::string& report, std::uint64_t limit, unsigned mode, ClaimedFiles* files,
           std::string* problem) {
    if (!make_folders(report, problem)) {
        return false;
    }
    if (is_shared_folder(report.substr(0, report.rfind('/') + 1))) {
        mode = mode_in_shared_folder;
    }
    const std::string stem = report_stem(report);
    const std::string suffix = ends_with(report, ".json") ? ".json" : "";
    for (int attempt = 1; attempt <= max_attempts; ++attempt) {
        const std::string numbered = attempt == 1 ? stem : stem + "." + std::to_string(attempt);
        if (access((numbered + suffix).c_str(), F_OK) == 0) {
            continue;  // a report whose log was not kept
        }
        trace::LogWriter::Result created = trace::LogWriter::create(
            numbered + ".memlog", limit, trace::LogStorage::automatic, mode);
        if (created.writer) {
            files->mode = mode;
            files->writer = std::move(created.writer);
            files->log = numbered + ".memlog";
            files->report = numbered + suffix;
            return true;
        }
        *problem = created.error;
        if (created.error_number != EEXIST) {
            return false;
        }
    }
    return false;
}

/// Empty if it was removed.
std::string working_directory() {
    std::string path(PATH_MAX, '\0');
    const bool there = getcwd(path.data(), path.size()) != nullptr && path.front() == '/';
    return there ? path.c_str() : "";
}

/// By how much the longest name of the path exceeds what a file system takes, with room for the
/// number and the ending that claim() adds.
std::size_t excess_of(const std::string& path) {
    constexpr std::size_t added = std::string_view(".10000.memlog").size();
    std::size_t longest = 0;
    std::size_t begin = 0;
    while (begin < path.size()) {
        const std::size_t end = std::min(path.find('/', begin), path.size());
        longest = std::max(longest, end - begin + (end == path.size() ? added : 0));
        begin = end + 1;
    }
    return longest > NAME_MAX ? longest - NAME_MAX : 0;
}

/// Cuts the end, but no character of UTF-8 in two.
void cut(std::string& text, std::size_t bytes) {
    std::size_t length = text.size() - std::min(bytes, text.size());
    while (length != 0 && length != text.size() &&
           (static_cast<unsigned char>(text[length]) & 0xc0) == 0x80) {
        --length;
    }
    text.resize(length);
}

/// The absolute path of a report.
std::string expand_whole(const std::string& pattern, const PatternValues& values,
                         const std::string& directory) {
    std::string path = expand(pattern, values);
    if (path.empty() || path.front() != '/') {
        path.insert(0, directory + "/");
    }
    if (path.back() != '/' && is_folder(path)) {
        path += '/';
    }
    return path.back() == '/' ? path + expand(default_name, values) : path;
}

}  // namespace

std::string expand_pattern(const std::string& pattern, const PatternValues& values,
                           const std::string& directory) {
    std::string path = expand_whole(pattern, values, directory);
    PatternValues shorter = values;
    for (std::size_t excess = excess_of(path); excess != 0 && !shorter.executable.empty();
         excess = excess_of(path)) {
        cut(shorter.executable, excess);
        const std::string next = expand_whole(pattern, shorter, directory);
        if (next == path) {  // it is not the program's name that is too long
            break;
        }
        path = next;
    }
    return path;
}

ClaimedFiles claim_files(const Settings& settings, const PatternValues& values) {
    ClaimedFiles files;
    std::string problem;
    const std::string folder = working_directory();
    const std::string preferred = expand_pattern(settings.output, values, folder);
    if (folder.empty() && expand_pattern(settings.output, values, "/-").starts_with("/-/")) {
        problem = "the working directory was removed";
    } else if (claim(preferred, settings.log_limit, files.mode, &files, &problem)) {
        return files;
    }
    std::string second_problem;
    if (claim(fallback_report(values), settings.log_limit, mode_in_shared_folder, &files,
              &second_problem)) {
        files.problem = problem + "; writing " + files.report + " instead (set MEMLAB_OUTPUT)";
    } else {
        files.problem = problem + "; " + second_problem +
                        "; nothing will be written (set MEMLAB_OUTPUT to a writable place)";
    }
    return files;
}

std::string fallback_report(const PatternValues& values) {
    const char* temporary = std::getenv("TMPDIR");
    const std::string folder = temporary != nullptr && *temporary == '/' ? temporary : "/tmp";
    return expand_pattern(default_name, values, folder);
}

void append_to_manifest(const Settings& settings, const ClaimedFiles& files) {
    if (settings.run_manifest.empty() || files.log.empty()) {
        return;
    }
    const int fd = trace::move_to_high_descriptor(
        open(settings.run_manifest.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NOFOLLOW));
    if (fd < 0) {
        return;  // memlab-run has ended
    }
    const std::string line = manifest_line(files.log, files.report, settings.arguments);
    const ssize_t written = write(fd, line.data(), line.size());
    static_cast<void>(written);  // on failure memlab-run misses this process; its files exist
    close(fd);
}

}  // namespace memlab::interpose
