#include "tools/run/launch.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace memlab::tools {

namespace {

/// The signals to forward. Not the stop signals: by their default action we stop and continue
/// together with the child.
constexpr int forwarded_signals[] = {SIGHUP,  SIGINT,    SIGQUIT, SIGTERM,  SIGUSR1, SIGUSR2,
                                     SIGALRM, SIGIO,     SIGPIPE, SIGWINCH, SIGXCPU, SIGPWR,
                                     SIGURG,  SIGVTALRM, SIGPROF, SIGXFSZ};

[[noreturn]] void exec_child(const std::vector<std::string>& arguments,
                             const std::vector<std::pair<std::string, std::string>>& environment,
                             const sigset_t& original_mask, const struct sigaction& original_child,
                             int error_pipe) {
    sigaction(SIGCHLD, &original_child, nullptr);
    pthread_sigmask(SIG_SETMASK, &original_mask, nullptr);
    for (const auto& [name, value] : environment) {
        setenv(name.c_str(), value.c_str(), 1);
    }
    std::vector<char*> argv;
    argv.reserve(arguments.size() + 1);
    for (const std::string& argument : arguments) {
        argv.push_back(const_cast<char*>(argument.c_str()));
    }
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    const int error = errno;
    if (write(error_pipe, &error, sizeof error) < 0) {
        _exit(126);
    }
    _exit(127);
}

/// Waits for the child, reaps what else ends, and forwards signals.
int supervise(pid_t child, const sigset_t& watched) {
    while (true) {
        // Others than the child: as pid 1 of a container this process inherits orphans.
        int status = 0;
        pid_t ended = 0;
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0) {
            if (ended == child) {
                return status;
            }
        }
        siginfo_t info{};
        const int signal = sigwaitinfo(&watched, &info);
        if (signal < 0 || signal == SIGCHLD) {
            continue;
        }
        // A signal from the terminal goes to the whole foreground group. Not forwarded: many
        // programs treat a second Ctrl-C differently.
        if (info.si_code != SI_KERNEL) {
            kill(child, signal);
        }
    }
}

}  // namespace

LaunchResult launch(const std::vector<std::string>& arguments,
                    const std::vector<std::pair<std::string, std::string>>& environment) {
    LaunchResult result;
    int error_pipe[2];
    if (pipe2(error_pipe, O_CLOEXEC) != 0) {
        result.start_error = errno;
        return result;
    }
    sigset_t watched;
    sigemptyset(&watched);
    for (const int signal : forwarded_signals) {
        sigaddset(&watched, signal);
    }
    sigaddset(&watched, SIGCHLD);
    sigset_t original_mask;
    pthread_sigmask(SIG_BLOCK, &watched, &original_mask);
    // If SIGCHLD is ignored (inherited), children are reaped without a status.
    struct sigaction default_child {};
    struct sigaction original_child {};
    default_child.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &default_child, &original_child);

    // Buffered output would be written by both processes.
    std::fflush(nullptr);
    const pid_t child = fork();
    if (child == 0) {
        close(error_pipe[0]);
        exec_child(arguments, environment, original_mask, original_child, error_pipe[1]);
    }
    const int fork_error = errno;
    close(error_pipe[1]);
    if (child < 0) {
        close(error_pipe[0]);
        result.start_error = fork_error;
        return result;
    }
    result.pid = child;
    ssize_t got = 0;
    do {
        got = read(error_pipe[0], &result.start_error, sizeof result.start_error);
    } while (got < 0 && errno == EINTR);
    close(error_pipe[0]);
    result.wait_status = supervise(child, watched);
    return result;
}

void end_like(int wait_status) {
    std::fflush(nullptr);
    if (!WIFSIGNALED(wait_status)) {
        _exit(WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 1);
    }
    const int signal = WTERMSIG(wait_status);
    const rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    raise(signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    _exit(128 + signal);
}

std::string signal_name(int signal) {
    const char* name = sigabbrev_np(signal);
    return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

}  // namespace memlab::tools
