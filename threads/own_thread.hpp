// A thread of memlab's own inside someone else's program: with all signals blocked, so that the
// program's handlers never run in it, and counted, so that it does not keep the process alive
// (interpose/process/last_thread.hpp).
#pragma once

#include <pthread.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <new>

namespace memlab::threads {

/// How many such threads run; one that begins or ends may not be counted. Reset it in a forked
/// child.
inline constinit std::atomic<unsigned> own_threads{0};

namespace own_thread {

struct Start {
    void* (*run)(void*);
    void* argument;
};

inline void* run_counted(void* given) {
    const Start start = *static_cast<Start*>(given);
    delete static_cast<Start*>(given);
    own_threads.fetch_add(1);
    void* const result = start.run(start.argument);
    own_threads.fetch_sub(1);
    return result;
}

}  // namespace own_thread

/// Starts the thread, detached unless `joinable` is given, which then names it. False when no
/// thread can be made. Thread-safe.
///
/// Its stack does not depend on the program, whose default may be 16 KiB
/// (pthread_setattr_default_np) or locked in memory (mlockall), unless its thread-local storage
/// leaves no room in it.
inline bool start_own_thread(void* (*run)(void*), void* argument, pthread_t* joinable = nullptr) {
    constexpr std::size_t stack_bytes = std::size_t{1} << 20;
    auto* const start = new (std::nothrow) own_thread::Start{run, argument};
    if (start == nullptr) {
        return false;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_attr_t attributes;
    const bool sized = pthread_attr_init(&attributes) == 0 &&
                       pthread_attr_setstacksize(&attributes, stack_bytes) == 0;
    pthread_sigmask(SIG_BLOCK, &all, &before);  // the new thread inherits the mask
    pthread_t thread{};
    const auto started_with = [&](const pthread_attr_t* given) {
        return pthread_create(&thread, given, &own_thread::run_counted, start) == 0;
    };
    const bool started = (sized && started_with(&attributes)) || started_with(nullptr);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_attr_destroy(&attributes);
    if (!started) {
        delete start;
    } else if (joinable != nullptr) {
        *joinable = thread;
    } else {
        pthread_detach(thread);
    }
    return started;
}

}  // namespace memlab::threads
