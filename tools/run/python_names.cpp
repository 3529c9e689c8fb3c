#include "tools/run/python_names.hpp"

#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <string_view>

namespace memlab::tools {

namespace {

/// In the build tree and where memlab is installed, and in a wheel. Empty: it is in neither.
std::string startup_folder() {
    char self[PATH_MAX];
    if (realpath("/proc/self/exe", self) == nullptr) {
        return {};
    }
    const std::string folder = std::string(self).substr(0, std::string(self).rfind('/'));
    for (const char* place : {"/../share/memlab/python/memlab/startup", "/../startup"}) {
        char resolved[PATH_MAX];
        if (realpath((folder + place).c_str(), resolved) != nullptr &&
            access((std::string(resolved) + "/sitecustomize.py").c_str(), R_OK) == 0) {
            return resolved;
        }
    }
    return {};
}

}  // namespace

std::vector<std::pair<std::string, std::string>> python_names(const char* before) {
    const std::string folder = startup_folder();
    if (folder.empty() || folder.find(':') != std::string::npos) {
        return {};
    }
    std::string path = folder;
    std::string_view rest = before == nullptr ? "" : before;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        const std::string_view entry = rest.substr(0, end);
        if (entry != folder) {
            path.append(":").append(entry);
        }
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return {{"MEMLAB_NAMES", "auto"}, {"PYTHONPATH", path}};
}

}  // namespace memlab::tools
