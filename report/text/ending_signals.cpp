#include "report/text/ending_signals.hpp"

#include <unistd.h>

#include <array>
#include <atomic>

namespace memlab::report {

namespace {

constexpr std::array ending_signals = {SIGINT, SIGTERM, SIGHUP};

// For the handler.
constinit std::atomic<const char*> unfinished{nullptr};
constinit std::atomic<int> terminal_of_line{-1};
static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

extern "C" void tidy_and_end(int signal) {
    if (const char* path = unfinished) {
        unlink(path);
    }
    if (const int terminal = terminal_of_line; terminal >= 0) {
        // Nothing can be done about a terminal that takes no more.
        [[maybe_unused]] const ssize_t written = write(terminal, wiping, sizeof wiping - 1);
    }
    // The default action is back (SA_RESETHAND): the shell sees how it ended.
    raise(signal);
}

void heed_signals() {
    static bool heeded = false;
    if (heeded) {
        return;
    }
    heeded = true;
    struct sigaction action {};
    action.sa_handler = tidy_and_end;
    action.sa_flags = static_cast<int>(SA_RESETHAND | SA_NODEFER);
    for (const int signal : ending_signals) {
        struct sigaction before {};
        if (sigaction(signal, nullptr, &before) == 0 && before.sa_handler != SIG_IGN) {
            sigaction(signal, &action, nullptr);
        }
    }
}

}  // namespace

void remove_when_ended(const char* path) {
    heed_signals();
    unfinished = path;
}

void wipe_when_ended(int terminal) {
    heed_signals();
    terminal_of_line = terminal;
}

SignalsHeld::SignalsHeld(Which which) {
    sigset_t held;
    sigemptyset(&held);
    if (which == Which::all) {
        sigfillset(&held);
    }
    for (const int signal : ending_signals) {
        sigaddset(&held, signal);
    }
    pthread_sigmask(SIG_BLOCK, &held, &before_);
}

SignalsHeld::~SignalsHeld() {
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace memlab::report
