// What the session does on request: the control channel, from the start of CUDA to the end of the
// process, and MEMLAB_YIELD, by which the process can step aside and come back.
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include "interpose/control/control_channel.hpp"
#include "interpose/control/oom_hold.hpp"
#include "interpose/driver/diagnostics.hpp"
#include "interpose/memory/device_memory.hpp"
#include "interpose/moving/program_handles.hpp"
#include "interpose/process/session.hpp"

namespace memlab::interpose {
namespace {

// Of the handler, which may run at any moment, in a forked child too.
std::atomic<Mover*> signalled_mover{nullptr};
std::atomic<pid_t> signalled_process{0};

std::atomic<int> ending_with{0};  // exit()'s code

void on_yield_signal(int signal) {
    const int saved = errno;
    Mover* const mover = signalled_mover.load();
    if (mover == nullptr || signalled_process.load() != ::getpid()) {
        struct sigaction action {};  // a child's own: as if memlab were not there
        action.sa_handler = SIG_DFL;
        ::sigaction(signal, &action, nullptr);
        ::raise(signal);
    } else {
        gate.own_handler_ran();
        mover->toggle();
    }
    errno = saved;
}

bool take_yield_signal(int signal) {
    struct sigaction before {};
    if (::sigaction(signal, nullptr, &before) != 0 ||
        (before.sa_handler != SIG_DFL && before.sa_handler != &on_yield_signal)) {
        return false;
    }
    struct sigaction action {};
    action.sa_handler = &on_yield_signal;
    action.sa_flags = SA_RESTART | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    return ::sigaction(signal, &action, nullptr) == 0;
}

std::string why_session_stays(Memory& memory) {
    auto& session = static_cast<Session&>(memory);
    if (session.ledger().nccl().has_peers_elsewhere()) {
        return "an NCCL communicator has ranks in other processes, which would wait for this one "
               "until their time-out";
    }
    return {};
}

}  // namespace

/// The session must be published: an answer looks for it.
void Session::start_answering() {
    oom_hold().set(settings_.hold_on_oom);
    if (!settings_.live) {
        return;
    }
    if (!channel_.start(&answer_request)) {
        debug("no control channel: no socket or no thread could be created");
        return;
    }
    // Registered late, so that it runs before CUDA's handlers: an answer must not call a driver
    // that is shutting down.
    std::atexit(&Session::stop_answering);
}

void Session::stop_answering() {
    if (Session* session = current()) {
        session->channel_.stop();
    }
}

/// Takes the signals of MEMLAB_YIELD_ON, unless the program handles or ignores them.
void Session::start_mover() {
    if (!settings_.yield) {
        return;
    }
    mover_ = std::make_unique<Mover>(*this, &why_session_stays);
    if (!mover_->start()) {
        mover_.reset();
        warn("MEMLAB_YIELD has no effect: no thread could be created");
        return;
    }
    signalled_mover.store(mover_.get());
    signalled_process.store(::getpid());
    for (int signal = 1; signal < 64; ++signal) {
        if ((settings_.yield_signals >> signal & 1) != 0 && !take_yield_signal(signal)) {
            warn("MEMLAB_YIELD_ON has no effect: the program handles the signal itself");
        }
    }
}

/// Call late, when the first context has a pool: nothing is moved once CUDA's own handlers run.
void Session::stop_moving_at_exit() {
    static std::atomic_flag registered = ATOMIC_FLAG_INIT;
    if (mover_ == nullptr || registered.test_and_set()) {
        return;
    }
    // As std::atexit, with the code.
    ::on_exit(
        [](int status, void* /*unused*/) {
            ending_with.store(status);
            if (Session* const session = current(); session != nullptr && session->mover_) {
                session->mover_->stop_at_exit([] {
                    finish(trace::EndKind::exit);
                    std::fflush(nullptr);
                    ::_exit(ending_with.load());
                });
            }
        },
        nullptr);
}

void Session::record_late_frees() {
    serve_nested_frees(*this);
    if (mover_) {
        mover_->record_deferred_frees();
    }
}

void Session::forget_moving_after_fork() {
    gate.forget_after_fork();
    program_handles().forget_after_fork();
    if (Mover* const mover = signalled_mover.exchange(nullptr)) {
        mover->forget_after_fork();
    }
}

}  // namespace memlab::interpose
