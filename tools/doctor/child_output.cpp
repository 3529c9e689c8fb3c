#include "tools/doctor/child_output.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>

namespace memlab::tools {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t max_output = std::size_t{1} << 20;

[[noreturn]] void become(const std::vector<std::string>& arguments, const Variables& variables,
                         int out, int err) {
    setpgid(0, 0);
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(out, STDOUT_FILENO);
    dup2(err, STDERR_FILENO);
    for (const auto& [name, value] : variables) {
        if (value.empty()) {
            unsetenv(name.c_str());
        } else {
            setenv(name.c_str(), value.c_str(), 1);
        }
    }
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execv(argv[0], argv.data());
    _exit(127);
}

/// Reads both pipes until they are closed or `end`. False: there was no end in time.
bool read_all(int out, int err, Clock::time_point end, ChildOutput* result) {
    std::array<pollfd, 2> files{{{out, POLLIN, 0}, {err, POLLIN, 0}}};
    const std::array<std::string*, 2> texts{&result->out, &result->err};
    while (files[0].fd >= 0 || files[1].fd >= 0) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) {
            return false;
        }
        if (poll(files.data(), files.size(), static_cast<int>(left)) < 0 && errno != EINTR) {
            return true;
        }
        for (std::size_t i = 0; i < files.size(); ++i) {
            if (files[i].fd < 0 || files[i].revents == 0) {
                continue;
            }
            char buffer[4096];
            const ssize_t length = read(files[i].fd, buffer, sizeof buffer);
            if (length <= 0) {
                files[i].fd = -1;
            } else if (texts[i]->size() < max_output) {
                texts[i]->append(buffer, static_cast<std::size_t>(length));
            }
        }
    }
    return true;
}

}  // namespace

ChildOutput run_child(const std::vector<std::string>& arguments, const Variables& variables,
                      std::chrono::milliseconds patience) {
    ChildOutput result;
    const Clock::time_point end = Clock::now() + patience;
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
    const pid_t child = fork();
    if (child == 0) {
        become(arguments, variables, out[1], err[1]);
    }
    close(out[1]);
    close(err[1]);
    if (child > 0) {
        setpgid(child, child);
        result.timed_out = !read_all(out[0], err[0], end, &result);
        // A process that closed its output may still hang.
        while (!result.timed_out && waitpid(child, &result.wait_status, WNOHANG) == 0) {
            result.timed_out = Clock::now() >= end;
            usleep(1000);
        }
        if (result.timed_out) {
            kill(-child, SIGKILL);
            waitpid(child, &result.wait_status, 0);
        }
    }
    close(out[0]);
    close(err[0]);
    return result;
}

}  // namespace memlab::tools
