#include "report/symbols/debuginfod.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string_view>
#include <vector>

extern "C" char** environ;

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

struct Answer {
    bool started = false;
    bool succeeded = false;
    std::string output;
    std::string errors;
};

/// Reads both to their end, so that neither fills up.
void read_both(int output, int errors, Answer* answer) {
    std::array<pollfd, 2> ends{pollfd{output, POLLIN, 0}, pollfd{errors, POLLIN, 0}};
    while (ends[0].fd >= 0 || ends[1].fd >= 0) {
        if (poll(ends.data(), ends.size(), -1) < 0 && errno != EINTR) {
            return;
        }
        for (pollfd& end : ends) {
            if (end.fd < 0 || end.revents == 0) {
                continue;
            }
            std::array<char, 4096> buffer;
            const ssize_t count = read(end.fd, buffer.data(), buffer.size());
            if (count > 0) {
                std::string& text = end.fd == output ? answer->output : answer->errors;
                text.append(buffer.data(), static_cast<std::size_t>(count));
            } else if (count == 0 || errno != EINTR) {
                end.fd = -1;
            }
        }
    }
}

Answer ask(const std::string& build_id) {
    std::vector<std::string> variables{"DEBUGINFOD_URLS=" + state().urls, "LC_ALL=C"};
    for (char** variable = environ; *variable != nullptr; ++variable) {
        const std::string_view text = *variable;
        // What is recorded here is not memlab's own helper.
        if (!text.starts_with("DEBUGINFOD_URLS=") && !text.starts_with("DEBUGINFOD_VERBOSE=") &&
            !text.starts_with("DEBUGINFOD_PROGRESS=") && !text.starts_with("LC_ALL=") &&
            !text.starts_with("LD_PRELOAD=")) {
            variables.emplace_back(text);
        }
    }
    std::vector<char*> environment;
    environment.reserve(variables.size() + 1);
    for (std::string& variable : variables) {
        environment.push_back(variable.data());
    }
    environment.push_back(nullptr);
    std::array<std::string, 3> words{program, "debuginfo", build_id};
    std::array<char*, 4> arguments{words[0].data(), words[1].data(), words[2].data(), nullptr};

    Answer answer;
    std::array<int, 2> output{};
    std::array<int, 2> errors{};
    if (pipe2(output.data(), O_CLOEXEC) != 0) {
        return answer;
    }
    if (pipe2(errors.data(), O_CLOEXEC) != 0) {
        close(output[0]);
        close(output[1]);
        return answer;
    }
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output[1], STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, errors[1], STDERR_FILENO);
    pid_t child = 0;
    answer.started =
        posix_spawnp(&child, program, &actions, nullptr, arguments.data(), environment.data()) == 0;
    posix_spawn_file_actions_destroy(&actions);
    close(output[1]);
    close(errors[1]);
    if (answer.started) {
        read_both(output[0], errors[0], &answer);
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
        }
        answer.succeeded = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }
    close(output[0]);
    close(errors[0]);
    return answer;
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
    const Answer answer = ask(build_id);
    if (!answer.started) {
        turn_off("debuginfod-find cannot be started, so there is no answer");
        return {};
    }
    if (answer.succeeded) {
        return answer.output.substr(0, answer.output.find('\n'));
    }
    const std::string reason = reason_in(answer.errors);
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
