// The pool's lock: held for a tenth of a microsecond at a time, by threads that come again at once.
//
// With such threads std::mutex nearly always has a sleeper, so that each unlock is a system call,
// several times as long as what the lock protects. Here
//  - a thread that finds the lock held spins before it sleeps: for `spins` pauses of the processor,
//    3 to 12 us, about what a sleep and its wake-up would take. Where the holder was preempted, or
//    waits for the driver, each contending thread spins that long once;
//  - unlock() wakes one sleeper, and none while an earlier one is still on its way: meanwhile the
//    threads that run take the lock in turns, without system calls;
//  - a process that may use a single processor never spins.
//
// Not fair, as std::mutex is not: a running thread may overtake a woken one. Sleepers are woken in
// the order in which they fell asleep.
//
// In a signal handler only try_lock() may be called. A forked child finds the lock as it was.
#pragma once

#include <atomic>
#include <cstdint>

#include "threads/mutex.hpp"

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace memlab::allocator {

/// Not recursive. For the guards of threads/mutex.hpp. It must outlive unlock(), which may wake a
/// thread after another has taken the lock.
class MEMLAB_LOCKABLE AdaptiveMutex {
  public:
    AdaptiveMutex() noexcept;
    AdaptiveMutex(const AdaptiveMutex&) = delete;
    AdaptiveMutex& operator=(const AdaptiveMutex&) = delete;

    void lock() noexcept MEMLAB_ACQUIRE() {
        before_lock(0);
        if (!take()) {
            lock_contended();
        }
        after_lock(0);
    }

    bool try_lock() noexcept MEMLAB_TRY_ACQUIRE(true) {
        before_lock(try_only);
        const bool taken = take();
        after_lock(taken ? try_only : try_only | try_failed);
        return taken;
    }

    void unlock() noexcept MEMLAB_RELEASE() {
        before_unlock();
        const std::uint32_t left = state_.fetch_sub(locked, std::memory_order_release) - locked;
        if (left != 0 && (left & waking) == 0) [[unlikely]] {
            wake_one();
        }
        after_unlock();
    }

    /// The longest that a spinning thread does not look, in pauses of the processor: a holder that
    /// wants it to have its turn leaves the lock for as long.
    static constexpr unsigned longest_pause = 128;

    /// As Mutex::assert_held().
    void assert_held() const noexcept MEMLAB_ASSERT_HELD() {}

  private:
    // state_: whether the lock is held, whether a thread has been woken that has not had its turn,
    // and above these the number of sleepers, that one included. If there are sleepers, the lock is
    // held or one is woken, or a thread is about to wake one in unlock().
    static constexpr std::uint32_t locked = 1;
    static constexpr std::uint32_t waking = 2;
    static constexpr std::uint32_t sleeper = 4;

    static constexpr unsigned spins = 2 * longest_pause - 2;

    bool take() noexcept {
        return (state_.fetch_or(locked, std::memory_order_acquire) & locked) == 0;
    }
    void lock_contended() noexcept;
    bool take_spinning(std::uint32_t own) noexcept;
    bool take_or_count_as_sleeper(std::uint32_t own) noexcept;
    void wait_for_turn() noexcept;
    void wake_one() noexcept;

#ifdef __SANITIZE_THREAD__
    // ThreadSanitizer checks the order of locks that it is told of.
    static constexpr unsigned try_only = __tsan_mutex_try_lock;
    static constexpr unsigned try_failed = __tsan_mutex_try_lock_failed;
    void before_lock(unsigned flags) noexcept {
        __tsan_mutex_pre_lock(this, flags);
    }
    void after_lock(unsigned flags) noexcept {
        __tsan_mutex_post_lock(this, flags, 0);
    }
    void before_unlock() noexcept {
        __tsan_mutex_pre_unlock(this, 0);
    }
    void after_unlock() noexcept {
        __tsan_mutex_post_unlock(this, 0);
    }
#else
    static constexpr unsigned try_only = 0;
    static constexpr unsigned try_failed = 0;
    static void before_lock(unsigned) noexcept {}
    static void after_lock(unsigned) noexcept {}
    static void before_unlock() noexcept {}
    static void after_unlock() noexcept {}
#endif

    std::atomic<std::uint32_t> state_{0};
    std::atomic<std::uint32_t> turn_{0};  ///< a futex: 1 from a wake-up until a sleeper takes it
    const unsigned max_spins_;
};

}  // namespace memlab::allocator
