// To wait for a lock no longer than a while: at a process's end its holder may have been a thread
// that is gone, or the very code that a signal handler interrupted.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <ctime>

#include "profiler/clock.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace memlab::profiler {

/// Locks `mutex`; false when monotonic_ns() reaches `until_ns` first.
inline bool lock_until(pthread_mutex_t* mutex, std::uint64_t until_ns) {
    const timespec until = timespec_of(until_ns);
    // ThreadSanitizer knows of pthread_mutex_lock, not of this one.
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
#endif
    const bool locked = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until) == 0;
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_post_lock(mutex,
                           __tsan_mutex_try_lock | (locked ? 0 : __tsan_mutex_try_lock_failed), 0);
#endif
    return locked;
}

}  // namespace memlab::profiler
