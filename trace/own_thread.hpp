// A thread of memlab's own inside someone else's program: with all signals blocked, so that the
// program's handlers never run in it.
#pragma once

#include <pthread.h>

#include <csignal>

namespace memlab::trace {

/// Starts the thread, detached unless `joinable` is given, which then names it. False when no
/// thread can be made. Thread-safe.
inline bool start_own_thread(void* (*run)(void*), void* argument, pthread_t* joinable = nullptr) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the new thread inherits the mask
    pthread_t thread{};
    const bool started = pthread_create(&thread, nullptr, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    if (started && joinable != nullptr) {
        *joinable = thread;
    } else if (started) {
        pthread_detach(thread);
    }
    return started;
}

}  // namespace memlab::trace
