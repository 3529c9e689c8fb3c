#include "interpose/process/report_signals.hpp"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>

#include "interpose/driver/reentrancy.hpp"
#include "interpose/moving/gate.hpp"
#include "profiler/clock.hpp"
#include "threads/own_thread.hpp"

namespace memlab::interpose {
namespace {

constexpr std::uint64_t max_wait_ns = 5'000'000'000;

// What handler and thread share. The handler may run at any moment, in a forked child too.
std::atomic<pid_t> owner{0};              // the process that the thread is of
std::atomic<std::uint64_t> pending{0};    // signals not yet seen by the thread
std::atomic<std::uint32_t> requested{0};  // a futex: number of signals
std::atomic<std::uint32_t> done{0};       // a futex: up to which of them the thread has reported
std::atomic<bool> final_taken{false};
void (*write_reports)(std::uint64_t signals) = nullptr;

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
    return syscall(SYS_futex, &word, operation | FUTEX_PRIVATE_FLAG, value, timeout, nullptr, 0);
}

/// What the signal does by default: ends the process.
void act_by_default(int signal) {
    struct sigaction action {};
    action.sa_handler = SIG_DFL;
    sigaction(signal, &action, nullptr);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    raise(signal);  // blocked while its handler runs
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
}

void wait_for_report(std::uint32_t number) {
    const std::uint64_t until = profiler::monotonic_ns() + max_wait_ns;
    for (;;) {
        const std::uint32_t reached = done.load(std::memory_order_acquire);
        const std::uint64_t now = profiler::monotonic_ns();
        if (static_cast<std::int32_t>(reached - number) >= 0 || now >= until) {
            return;
        }
        const timespec left = profiler::to_timespec(until - now);
        futex(done, FUTEX_WAIT, reached, &left);
    }
}

void on_signal(int signal) {
    const int saved = errno;
    gate.own_handler_ran();
    if (owner.load(std::memory_order_acquire) != getpid()) {
        act_by_default(signal);
    } else {
        pending.fetch_or(std::uint64_t{1} << signal, std::memory_order_relaxed);
        const std::uint32_t number = requested.fetch_add(1, std::memory_order_release) + 1;
        futex(requested, FUTEX_WAKE, 1, nullptr);
        if (!goes_on_after(signal)) {
            wait_for_report(number);
            act_by_default(signal);
        }
    }
    errno = saved;
}

void* write_on_request(void* /*unused*/) {
    const InsideMemlab inside;
    std::uint32_t seen = done.load(std::memory_order_relaxed);
    for (;;) {
        futex(requested, FUTEX_WAIT, seen, nullptr);
        const std::uint32_t number = requested.load(std::memory_order_acquire);
        if (number == seen) {
            continue;
        }
        write_reports(pending.exchange(0, std::memory_order_acquire));
        seen = number;
        done.store(number, std::memory_order_release);
        futex(done, FUTEX_WAKE, INT32_MAX, nullptr);
    }
}

/// Also where a parent's session set its handler before a fork.
bool is_default(const struct sigaction& action) {
    return action.sa_handler == SIG_DFL || action.sa_handler == &on_signal;
}

}  // namespace

bool report_on_signals(std::uint64_t signals, void (*write)(std::uint64_t signals)) {
    if (signals == 0) {
        return true;
    }
    write_reports = write;
    pending.store(0, std::memory_order_relaxed);
    if (!threads::start_own_thread(&write_on_request, nullptr)) {
        return false;
    }
    owner.store(getpid(), std::memory_order_release);
    for (int signal = 1; signal < 64; ++signal) {
        struct sigaction current {};
        if ((signals >> signal & 1) == 0 || sigaction(signal, nullptr, &current) != 0 ||
            !is_default(current)) {
            continue;
        }
        struct sigaction action {};
        action.sa_handler = &on_signal;
        action.sa_flags = SA_RESTART | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        struct sigaction replaced {};
        if (sigaction(signal, &action, &replaced) == 0 && !is_default(replaced)) {
            sigaction(signal, &replaced, nullptr);  // another thread set it in between
        }
    }
    return true;
}

bool goes_on_after(int signal) noexcept {
    return signal == SIGUSR1 || signal == SIGUSR2;
}

bool take_final_report() noexcept {
    return !final_taken.exchange(true);
}

void forget_report_signals_after_fork() noexcept {
    owner.store(0, std::memory_order_release);
    pending.store(0, std::memory_order_relaxed);
    done.store(requested.load(std::memory_order_relaxed), std::memory_order_relaxed);
    final_taken.store(false, std::memory_order_relaxed);
}

}  // namespace memlab::interpose
