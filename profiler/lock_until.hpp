// Locks a mutex with a timeout. At process exit its holder may be a thread that no longer exists,
// or the code that the calling signal handler interrupted.
//
// By trying again and again, which is rare: glibc 2.28 has no pthread_mutex_clocklock, a change of
// the wall clock prolongs pthread_mutex_timedlock, and ThreadSanitizer, which a program may be
// built with, takes the former's unlock for a mistake of the program's.
#pragma once

#include <cstdint>

#include "profiler/clock.hpp"
#include "threads/mutex.hpp"

namespace memlab::profiler {

/// Locks `mutex`; false if monotonic_ns() reaches `deadline_ns` first. No cancellation point.
inline bool lock_until(threads::Mutex& mutex, std::uint64_t deadline_ns)
    MEMLAB_TRY_ACQUIRE(true, mutex) {
    constexpr std::uint64_t interval_ns = 200'000;
    while (!mutex.try_lock()) {
        if (monotonic_ns() >= deadline_ns) {
            return false;
        }
        sleep_ns(interval_ns);
    }
    return true;
}

}  // namespace memlab::profiler
