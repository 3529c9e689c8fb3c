#include "report/symbols/debuginfod.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>

#include "report/child_output.hpp"

namespace memlab::report {

namespace {

constexpr char program[] = "debuginfod-find";

struct State {
    bool allowed = false;
    std::string urls;
    std::string problem;            ///< why downloads were turned off
    std::set<std::string> unknown;  ///< build ids unknown to the servers
};

State& state() {
    static State instance;
    return instance;
}

bool is_in_path(const char* name) {
    const char* path = std::getenv("PATH");
    std::string_view rest = path == nullptr ? "/usr/bin:/bin" : path;
    while (!rest.empty()) {
        const std::string_view folder = rest.substr(0, rest.find(':'));
        rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
        const std::string candidate = (folder.empty() ? "." : std::string(folder)) + "/" + name;
        if (access(candidate.c_str(), X_OK) == 0) {
            return true;
        }
    }
    return false;
}

ChildOutput ask(const std::string& build_id) {
    return run_child({program, "debuginfo", build_id}, {{"DEBUGINFOD_URLS", state().urls},
                                                        {"DEBUGINFOD_VERBOSE", ""},
                                                        {"DEBUGINFOD_PROGRESS", ""},
                                                        {"LC_ALL", "C"},
                                                        // memlab's helper is not recorded.
                                                        {"LD_PRELOAD", ""}});
}

void turn_off(const std::string& problem) {
    state().problem = problem;
    state().allowed = false;
}

/// The first line, without debuginfod-find's own "Server query failed: ".
std::string reason_in(std::string_view errors) {
    errors = errors.substr(0, errors.find('\n'));
    constexpr std::string_view prefix = "Server query failed: ";
    if (const auto at = errors.find(prefix); at != std::string_view::npos) {
        errors.remove_prefix(at + prefix.size());
    }
    return errors.empty() ? std::string("no answer") : std::string(errors);
}

}  // namespace

std::string allow_debuginfod() {
    const char* urls = std::getenv("DEBUGINFOD_URLS");
    if (urls == nullptr || std::string_view(urls).find_first_not_of(' ') == std::string::npos) {
        return "DEBUGINFOD_URLS names no server; set it (https://debuginfod.elfutils.org/ lists "
               "those "
               "of the distributions)";
    }
    if (!is_in_path(program)) {
        return "needs the program debuginfod-find; install it (Debian, Ubuntu: debuginfod, Fedora: "
               "elfutils-debuginfod-client)";
    }
    state().urls = urls;
    state().allowed = true;
    return {};
}

void hide_debuginfod_from_libdw() {
    unsetenv("DEBUGINFOD_URLS");  // the only source of servers for libdwfl
}

bool debuginfod_allowed() {
    return state().allowed;
}

std::string fetch_debuginfo(const std::string& build_id) {
    if (!state().allowed || state().unknown.contains(build_id)) {
        return {};
    }
    const ChildOutput answer = ask(build_id);
    if (!answer.started()) {
        turn_off("debuginfod-find cannot be started, so there is no answer");
        return {};
    }
    if (answer.succeeded()) {
        return answer.out.substr(0, answer.out.find('\n'));
    }
    const std::string reason = reason_in(answer.err);
    if (reason == std::strerror(ENOENT)) {
        state().unknown.insert(build_id);
    } else {
        turn_off(reason == std::strerror(ETIME) ? "no answer in time" : reason);
    }
    return {};
}

void debuginfod_sent_another_build() {
    turn_off("a file that is not of this build");
}

std::string debuginfod_note() {
    if (!state().problem.empty()) {
        return "--debuginfod: " + state().problem +
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
