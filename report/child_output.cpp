#include "report/child_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string_view>

namespace memlab::report {

namespace {

using Clock = std::chrono::steady_clock;
using Deadline = std::optional<Clock::time_point>;

constexpr std::size_t max_output = std::size_t{1} << 20;

/// Pointers to the texts, and a null behind them.
std::vector<char*> as_array(std::vector<std::string>& texts) {
    std::vector<char*> array;
    array.reserve(texts.size() + 1);
    for (std::string& text : texts) {
        array.push_back(text.data());
    }
    array.push_back(nullptr);
    return array;
}

std::vector<std::string> make_environment(const ChildVariables& variables) {
    std::vector<std::string> environment;
    for (const auto& [name, value] : variables) {
        if (!value.empty()) {
            environment.push_back(name);
            environment.back().append("=").append(value);
        }
    }
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text = *entry;
        const std::string_view name = text.substr(0, text.find('='));
        if (std::none_of(variables.begin(), variables.end(),
                         [name](const auto& each) { return each.first == name; })) {
            environment.emplace_back(text);
        }
    }
    return environment;
}

/// The process id, or -1.
pid_t start(const std::vector<std::string>& arguments, const ChildVariables& variables,
            bool own_group, int out, int err) {
    std::vector<std::string> words = arguments;
    std::vector<std::string> environment = make_environment(variables);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    if (own_group) {
        posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
        posix_spawnattr_setpgroup(&attributes, 0);
    }
    pid_t child = -1;
    if (posix_spawnp(&child, words.at(0).c_str(), &actions, &attributes, as_array(words).data(),
                     as_array(environment).data()) != 0) {
        child = -1;
    }
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    return child;
}

/// Reads both pipes until they are closed or `end`. False: there was no end in time.
bool read_all(int out, int err, const Deadline& end, ChildOutput* result) {
    std::array<pollfd, 2> files{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
    const std::array<std::string*, 2> texts{&result->out, &result->err};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        int left_ms = -1;
        if (end) {
            const auto left = std::chrono::ceil<std::chrono::milliseconds>(*end - Clock::now());
            if (left.count() <= 0) {
                return false;
            }
            left_ms = static_cast<int>(left.count());
        }
        if (poll(files.data(), files.size(), left_ms) < 0 && errno != EINTR) {
            return true;
        }
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (files[i].fd < 0 || files[i].revents == 0) {
                continue;
            }
            char buffer[4096];
            const ssize_t length = read(files[i].fd, buffer, sizeof buffer);
            if (length < 0 && errno == EINTR) {
                continue;
            }
            if (length <= 0) {
                files[i].fd = -1;
            } else if (texts[i]->size() < max_output) {
                texts[i]->append(buffer, static_cast<std::size_t>(length));
            }
        }
    }
    return true;
}

void wait_for(pid_t child, int* status) {
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
}

}  // namespace

ChildOutput run_child(const std::vector<std::string>& arguments, const ChildVariables& variables,
                      std::optional<std::chrono::milliseconds> patience) {
    ChildOutput result;
    const Deadline end = patience ? Deadline(Clock::now() + *patience) : Deadline();
    int out[2];
    int err[2];
    if (pipe2(out, O_CLOEXEC) != 0) {
        return result;
    }
    if (pipe2(err, O_CLOEXEC) != 0) {
        close(out[0]);
        close(out[1]);
        return result;
    }
    const pid_t child = start(arguments, variables, end.has_value(), out[1], err[1]);
    close(out[1]);
    close(err[1]);
    if (child > 0) {
        result.timed_out = !read_all(out[0], err[0], end, &result);
        // A process that closed its output may still hang.
        while (end && !result.timed_out && waitpid(child, &result.wait_status, WNOHANG) == 0) {
            result.timed_out = Clock::now() >= *end;
            usleep(1000);
        }
        if (result.timed_out) {
            kill(-child, SIGKILL);
        }
        if (!end || result.timed_out) {
            wait_for(child, &result.wait_status);
        }
    }
    close(out[0]);
    close(err[0]);
    return result;
}

}  // namespace memlab::report
