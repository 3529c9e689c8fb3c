// A thread of memlab's own inside someone else's program: with all signals blocked, so that the
// program's handlers never run in it.
#pragma once

#include <pthread.h>

#include <csignal>
#include <cstddef>

namespace memlab::trace {

/// Starts the thread, detached unless `joinable` is given, which then names it. False when no
/// thread can be made. Thread-safe.
///
/// Its stack does not depend on the program, whose default may be 16 KiB
/// (pthread_setattr_default_np) or locked in memory (mlockall), unless its thread-local storage
/// leaves no room in it.
inline bool start_own_thread(void* (*run)(void*), void* argument, pthread_t* joinable = nullptr) {
    constexpr std::size_t stack_bytes = std::size_t{1} << 20;
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_attr_t attributes;
    const bool sized = pthread_attr_init(&attributes) == 0 &&
                       pthread_attr_setstacksize(&attributes, stack_bytes) == 0;
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the new thread inherits the mask
    pthread_t thread{};
    const bool started = (sized && pthread_create(&thread, &attributes, run, argument) == 0) ||
                         pthread_create(&thread, nullptr, run, argument) == 0;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (started && joinable != nullptr) {
        *joinable = thread;
    } else if (started) {
        pthread_detach(thread);
    }
    return started;
}

}  // namespace memlab::trace
