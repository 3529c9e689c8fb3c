// Locks a mutex with a timeout. At process exit its holder may be a thread that no longer exists,
// or the code that the calling signal handler interrupted.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <ctime>

#include "profiler/clock.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace memlab::profiler {

/// Locks `mutex`; false if monotonic_ns() reaches `deadline_ns` first.
inline bool lock_until(pthread_mutex_t* mutex, std::uint64_t deadline_ns) {
    const timespec deadline = to_timespec(deadline_ns);
    // ThreadSanitizer does not intercept pthread_mutex_clocklock.
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_pre_lock(mutex, __tsan_mutex_try_lock);
#endif
    const bool locked = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &deadline) == 0;
#ifdef __SANITIZE_THREAD__
    __tsan_mutex_post_lock(mutex,
                           __tsan_mutex_try_lock | (locked ? 0 : __tsan_mutex_try_lock_failed), 0);
#endif
    return locked;
}

}  // namespace memlab::profiler
