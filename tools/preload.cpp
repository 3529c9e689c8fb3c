#include "tools/preload.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

namespace memlab::tools {

namespace {

/// Whether the loader takes it for one entry.
bool fits_in_preload(const std::string& path) {
    return path.find_first_of(" :\t\n") == std::string::npos;
}

}  // namespace

FoundLibrary find_library(const std::string& asked, const std::string& working_directory) {
    char self[PATH_MAX];
    std::vector<std::string> candidates;
    if (!asked.empty()) {
        candidates.push_back(asked);
    } else if (realpath("/proc/self/exe", self) != nullptr) {
        const std::string folder = std::string(self).substr(0, std::string(self).rfind('/'));
        for (const char* place : {"/../lib/", "/../lib64/", "/../lib/x86_64-linux-gnu/", "/"}) {
            candidates.push_back(folder + place + "libmemlab.so");
        }
    }
    for (const std::string& candidate : candidates) {
        char resolved[PATH_MAX];
        if (realpath(candidate.c_str(), resolved) == nullptr || access(resolved, R_OK) != 0) {
            continue;
        }
        const std::string path = resolved;
        if (fits_in_preload(path)) {
            return {path, ""};
        }
        // A link of the user's. One of our own could not be removed: the command's children, which
        // need it, may outlive us.
        std::string link = asked;
        if (!asked.empty() && asked.front() != '/') {
            link = working_directory;
            link += '/';
            link += asked;
        }
        if (!link.empty() && fits_in_preload(link)) {
            return {link, ""};
        }
        return {"", "LD_PRELOAD cannot contain a path with a space or a colon: " + path +
                        "; move it, or make a link to it (ln -s) and give that with --library"};
    }
    if (!asked.empty()) {
        return {"", "cannot read " + asked + " (" + std::strerror(errno) +
                        "); give libmemlab.so with --library"};
    }
    return {"", "libmemlab.so is not in ../lib beside this program; give it with --library"};
}

std::string preload_with(const std::string& library, const char* before) {
    std::string result = library;
    std::string_view rest = before == nullptr ? "" : before;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find_first_of(": "), rest.size());
        const std::string_view entry = rest.substr(0, end);
        if (!entry.empty() && entry != library) {
            result += ":" + std::string(entry);
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return result;
}

}  // namespace memlab::tools
