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
    const std::string bin = std::string(self).substr(0, std::string(self).rfind('/'));
    const std::string prefix = bin.substr(0, bin.rfind('/'));
    for (const char* below : {"/share/memlab/python/memlab/startup", "/startup"}) {
        // Not resolved: reports know memlab's own frames by this path (model/python_source.hpp).
        std::string folder = prefix + below;
        if (access((folder + "/sitecustomize.py").c_str(), R_OK) == 0) {
            return folder;
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
