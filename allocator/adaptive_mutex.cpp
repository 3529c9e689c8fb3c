#include "allocator/adaptive_mutex.hpp"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace memlab::allocator {

namespace {

bool has_one_processor() {
    cpu_set_t usable;
    return sched_getaffinity(0, sizeof usable, &usable) == 0 && CPU_COUNT(&usable) == 1;
}

void futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value) {
    const int error = errno;  // the program's
    syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
    errno = error;
}

}  // namespace

AdaptiveMutex::AdaptiveMutex() noexcept : max_spins_(has_one_processor() ? 0 : spins) {}

void AdaptiveMutex::lock_contended() noexcept {
    std::uint32_t own = 0;  // what this thread has added to state_
    while (!take_spinning(own) && !take_or_count_as_sleeper(own)) {
        wait_for_turn();
        own = sleeper | waking;
    }
}

/// Looks for the lock after 2, 4, 8, ... pauses: each look costs its holder a cache miss, and a
/// lock that changes hands costs its next holder one for all that it protects. So the longer a
/// thread has waited, the longer it leaves the lock to those that have its data in their caches.
bool AdaptiveMutex::take_spinning(std::uint32_t own) noexcept {
    unsigned pauses = 1;
    for (unsigned spun = 0; spun < max_spins_; spun += pauses) {
        pauses *= 2;
        for (unsigned i = 0; i < pauses; ++i) {
            __builtin_ia32_pause();
        }
        std::uint32_t state = state_.load(std::memory_order_relaxed);
        if ((state & locked) == 0 &&
            state_.compare_exchange_strong(state, (state | locked) - own, std::memory_order_acquire,
                                           std::memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/// False: the lock is held, and its holder will see that this thread sleeps.
bool AdaptiveMutex::take_or_count_as_sleeper(std::uint32_t own) noexcept {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    for (;;) {
        const bool held = (state & locked) != 0;
        const std::uint32_t next = (held ? state + sleeper : state | locked) - own;
        if (state_.compare_exchange_weak(state, next, std::memory_order_acquire,
                                         std::memory_order_relaxed)) {
            return !held;
        }
    }
}

void AdaptiveMutex::wait_for_turn() noexcept {
    while (turn_.exchange(0, std::memory_order_acquire) == 0) {
        futex(turn_, FUTEX_WAIT_PRIVATE, 0);
    }
}

/// Unless another thread has the lock by now: then that one will.
void AdaptiveMutex::wake_one() noexcept {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    while (state != 0 && (state & (locked | waking)) == 0) {
        if (state_.compare_exchange_weak(state, state | waking, std::memory_order_relaxed)) {
            turn_.store(1, std::memory_order_release);
            futex(turn_, FUTEX_WAKE_PRIVATE, 1);
            return;
        }
    }
}

}  // namespace memlab::allocator
