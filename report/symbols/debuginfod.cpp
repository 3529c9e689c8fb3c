#include "report/symbols/debuginfod.hpp"

#include <dlfcn.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

namespace memlab::report {

namespace {

struct State {
    bool allowed = false;
    int error = 0;                  ///< why downloads were turned off
    std::set<std::string> unknown;  ///< build ids unknown to the servers
};

State& state() {
    static State instance;
    return instance;
}

std::string words_for(int error) {
    switch (error) {
        case ETIME:
            return "no answer in time";
        case EBADMSG:
            return "a file that is not of this build";
        case EPERM:  // libdw returns -1 when it has no libdebuginfod
            return "nothing, as libdw was built without libdebuginfod,";
        default:
            return std::strerror(error);
    }
}

}  // namespace

std::string allow_debuginfod() {
    const char* urls = std::getenv("DEBUGINFOD_URLS");
    if (urls == nullptr || std::string_view(urls).find_first_not_of(' ') == std::string::npos) {
        return "DEBUGINFOD_URLS names no server; set it (https://debuginfod.elfutils.org/ lists "
               "those "
               "of the distributions)";
    }
    // libdw loads it itself, and reports no error when it is missing.
    void* library = dlopen("libdebuginfod.so.1", RTLD_LAZY);
    if (library == nullptr) {
        return "needs libdebuginfod.so.1; install it (Debian: libdebuginfod1, Ubuntu: "
               "libdebuginfod1t64)";
    }
    dlclose(library);
    state().allowed = true;
    return {};
}

bool debuginfod_allowed() {
    return state().allowed;
}

void debuginfod_failed(const std::string& build_id, int error) {
    if (error == ENOENT) {
        state().unknown.insert(build_id);
    } else if (state().error == 0) {
        state().error = error;
        unsetenv("DEBUGINFOD_URLS");
    }
}

std::string debuginfod_note() {
    if (state().error != 0) {
        return "--debuginfod: " + words_for(state().error) +
               " from the servers of DEBUGINFOD_URLS; they were not asked again, and names are "
               "missing";
    }
    const std::size_t count = state().unknown.size();
    if (count == 0) {
        return {};
    }
    return "--debuginfod: the servers of DEBUGINFOD_URLS have nothing about " +
           (count == 1 ? std::string("1 binary") : std::to_string(count) + " binaries");
}

}  // namespace memlab::report
