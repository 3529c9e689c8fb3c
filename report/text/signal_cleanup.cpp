#include "report/text/signal_cleanup.hpp"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

namespace memlab::report {

namespace {

constexpr std::array ending_signals = {SIGINT, SIGTERM, SIGHUP};

// Read by the signal handler.
constinit std::array<std::atomic<const char*>, 4> files_to_remove{};
constinit std::atomic<int> terminal_to_clear{-1};
static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<int>::is_always_lock_free);

extern "C" void clean_up_and_end(int signal) {
    for (const std::atomic<const char*>& file : files_to_remove) {
        if (const char* path = file) {
            unlink(path);
        }
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

RemovedOnSignal::RemovedOnSignal(std::string path) : path_(std::move(path)) {
    install_handlers();
    const auto* const free = std::find_if(files_to_remove.begin(), files_to_remove.end(),
                                          [](const auto& file) { return file.load() == nullptr; });
    place_ = static_cast<std::size_t>(free - files_to_remove.begin());
    if (place_ < files_to_remove.size()) {
        files_to_remove[place_] = path_.c_str();
    }
}

RemovedOnSignal::~RemovedOnSignal() {
    if (place_ < files_to_remove.size()) {
        files_to_remove[place_] = nullptr;
    }
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
