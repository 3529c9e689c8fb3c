#include "report/text/signal_cleanup.hpp"

#include <unistd.h>

#include <array>
#include <atomic>

namespace memlab::report {

namespace {

constexpr std::array ending_signals = {SIGINT, SIGTERM, SIGHUP};

// Read by the signal handler.
constinit std::atomic<const char*> file_to_remove{nullptr};
constinit std::atomic<int> terminal_to_clear{-1};
static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

extern "C" void clean_up_and_end(int signal) {
    if (const char* path = file_to_remove) {
        unlink(path);
    }
    if (const int terminal = terminal_to_clear; terminal >= 0) {
        // A failed write cannot be handled here.
        [[maybe_unused]] const ssize_t written = write(terminal, clear_line, sizeof clear_line - 1);
    }
    // SA_RESETHAND has restored the default action: the shell sees the signal.
    raise(signal);
}

void install_handlers() {
    static bool installed = false;
    if (installed) {
        return;
    }
    installed = true;
    struct sigaction action {};
    action.sa_handler = clean_up_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : ending_signals) {
        struct sigaction previous {};
        if (sigaction(signal, nullptr, &previous) == 0 && previous.sa_handler != SIG_IGN) {
            sigaction(signal, &action, nullptr);
        }
    }
}

}  // namespace

void remove_file_on_signal(const char* path) {
    install_handlers();
    file_to_remove = path;
}

void clear_line_on_signal(int terminal) {
    install_handlers();
    terminal_to_clear = terminal;
}

SignalBlocker::SignalBlocker(Which which) {
    sigset_t blocked;
    sigemptyset(&blocked);
    if (which == Which::all) {
        sigfillset(&blocked);
    }
    for (const int signal : ending_signals) {
        sigaddset(&blocked, signal);
    }
    pthread_sigmask(SIG_BLOCK, &blocked, &previous_);
}

SignalBlocker::~SignalBlocker() {
    pthread_sigmask(SIG_SETMASK, &previous_, nullptr);
}

}  // namespace memlab::report
