// Locks whose use clang checks: what a lock guards is an annotation of the member, what must be
// locked one of the function. `tools/dev lint` fails where a guarded member is used without its
// lock (clang's -Wthread-safety; other compilers see no annotations). The C++ library's own locks
// have none.
#pragma once

#include <pthread.h>

#include <mutex>
#include <shared_mutex>

#ifdef __clang__
#define MEMLAB_THREAD_SAFETY(attribute) __attribute__((attribute))
#else
#define MEMLAB_THREAD_SAFETY(attribute)
#endif
#define MEMLAB_LOCKABLE MEMLAB_THREAD_SAFETY(capability("mutex"))
#define MEMLAB_SCOPED_LOCK MEMLAB_THREAD_SAFETY(scoped_lockable)
/// A member; what a pointer points to.
#define MEMLAB_GUARDED_BY(lock) MEMLAB_THREAD_SAFETY(guarded_by(lock))
#define MEMLAB_PT_GUARDED_BY(lock) MEMLAB_THREAD_SAFETY(pt_guarded_by(lock))
/// A function: the locks that its caller holds, holds shared, or must not hold.
#define MEMLAB_REQUIRES(...) MEMLAB_THREAD_SAFETY(requires_capability(__VA_ARGS__))
/// The same; the function may unlock it and lock it again, so what was read before may be old.
#define MEMLAB_MAY_UNLOCK(...) MEMLAB_THREAD_SAFETY(requires_capability(__VA_ARGS__))
#define MEMLAB_REQUIRES_SHARED(...) MEMLAB_THREAD_SAFETY(requires_shared_capability(__VA_ARGS__))
#define MEMLAB_EXCLUDES(...) MEMLAB_THREAD_SAFETY(locks_excluded(__VA_ARGS__))
#define MEMLAB_ACQUIRE(...) MEMLAB_THREAD_SAFETY(acquire_capability(__VA_ARGS__))
#define MEMLAB_ACQUIRE_SHARED(...) MEMLAB_THREAD_SAFETY(acquire_shared_capability(__VA_ARGS__))
#define MEMLAB_RELEASE(...) MEMLAB_THREAD_SAFETY(release_capability(__VA_ARGS__))
#define MEMLAB_RELEASE_SHARED(...) MEMLAB_THREAD_SAFETY(release_shared_capability(__VA_ARGS__))
#define MEMLAB_TRY_ACQUIRE(...) MEMLAB_THREAD_SAFETY(try_acquire_capability(__VA_ARGS__))
#define MEMLAB_ASSERT_HELD(...) MEMLAB_THREAD_SAFETY(assert_capability(__VA_ARGS__))
#define MEMLAB_RETURN_LOCK(lock) MEMLAB_THREAD_SAFETY(lock_returned(lock))
/// A function that the analysis cannot follow; a comment says why it is right.
#define MEMLAB_UNCHECKED_LOCKS MEMLAB_THREAD_SAFETY(no_thread_safety_analysis)

namespace memlab::threads {

/// As std::mutex.
class MEMLAB_LOCKABLE Mutex {
  public:
    constexpr Mutex() noexcept = default;
    Mutex(const Mutex&) = delete;
    Mutex& operator=(const Mutex&) = delete;

    void lock() noexcept MEMLAB_ACQUIRE() { pthread_mutex_lock(&mutex_); }
    bool try_lock() noexcept MEMLAB_TRY_ACQUIRE(true) {
        return pthread_mutex_trylock(&mutex_) == 0;
    }
    void unlock() noexcept MEMLAB_RELEASE() { pthread_mutex_unlock(&mutex_); }
    pthread_mutex_t* native_handle() noexcept { return &mutex_; }
    /// In a forked child, whose only thread needs no lock: unlocks what a thread of the parent's
    /// had.
    void reset_after_fork() noexcept MEMLAB_ASSERT_HELD() { mutex_ = PTHREAD_MUTEX_INITIALIZER; }
    /// In a function object that is called with the lock: says so, does nothing.
    void assert_held() const noexcept MEMLAB_ASSERT_HELD() {}

  private:
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
};

/// As std::shared_mutex.
class MEMLAB_LOCKABLE SharedMutex {
  public:
    void lock() MEMLAB_ACQUIRE() { mutex_.lock(); }
    bool try_lock() MEMLAB_TRY_ACQUIRE(true) { return mutex_.try_lock(); }
    void unlock() MEMLAB_RELEASE() { mutex_.unlock(); }
    void lock_shared() MEMLAB_ACQUIRE_SHARED() { mutex_.lock_shared(); }
    void unlock_shared() MEMLAB_RELEASE_SHARED() { mutex_.unlock_shared(); }

  private:
    std::shared_mutex mutex_;
};

/// As std::lock_guard.
template <class Lockable>
class MEMLAB_SCOPED_LOCK LockGuard {
  public:
    [[gnu::always_inline]] explicit LockGuard(Lockable& mutex) MEMLAB_ACQUIRE(mutex)
        : mutex_(mutex) {
        mutex_.lock();
    }
    [[gnu::always_inline]] LockGuard(Lockable& mutex, std::adopt_lock_t) MEMLAB_REQUIRES(mutex)
        : mutex_(mutex) {}
    [[gnu::always_inline]] ~LockGuard() MEMLAB_RELEASE() { mutex_.unlock(); }
    LockGuard(const LockGuard&) = delete;
    LockGuard& operator=(const LockGuard&) = delete;

  private:
    Lockable& mutex_;
};

/// As std::shared_lock, held to the end of the scope.
template <class Lockable>
class MEMLAB_SCOPED_LOCK SharedLockGuard {
  public:
    explicit SharedLockGuard(Lockable& mutex) MEMLAB_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
        mutex_.lock_shared();
    }
    ~SharedLockGuard() MEMLAB_RELEASE() { mutex_.unlock_shared(); }
    SharedLockGuard(const SharedLockGuard&) = delete;
    SharedLockGuard& operator=(const SharedLockGuard&) = delete;

  private:
    Lockable& mutex_;
};

/// As std::unique_lock, for code that unlocks within the scope, itself or in a function that gets
/// the lock.
template <class Lockable>
class MEMLAB_SCOPED_LOCK UniqueLock {
  public:
    [[gnu::always_inline]] explicit UniqueLock(Lockable& mutex) MEMLAB_ACQUIRE(mutex)
        : mutex_(mutex) {
        mutex_.lock();
    }
    [[gnu::always_inline]] UniqueLock(Lockable& mutex, std::adopt_lock_t) MEMLAB_REQUIRES(mutex)
        : mutex_(mutex) {}
    [[gnu::always_inline]] ~UniqueLock() MEMLAB_RELEASE() {
        if (owns_) {
            mutex_.unlock();
        }
    }
    UniqueLock(const UniqueLock&) = delete;
    UniqueLock& operator=(const UniqueLock&) = delete;

    void lock() MEMLAB_ACQUIRE() {
        mutex_.lock();
        owns_ = true;
    }
    void unlock() MEMLAB_RELEASE() {
        owns_ = false;
        mutex_.unlock();
    }
    /// In a function that gets the lock: to the analysis it is held to the end of the scope.
    void unlock_early() MEMLAB_UNCHECKED_LOCKS {
        owns_ = false;
        mutex_.unlock();
    }
    bool owns_lock() const { return owns_; }

  private:
    Lockable& mutex_;
    bool owns_ = true;
};

/// As std::condition_variable, whose predicates the analysis does not look into: wait in a loop.
class ConditionVariable {
  public:
    void wait(Mutex& mutex) MEMLAB_REQUIRES(mutex) {
        pthread_cond_wait(&changed_, mutex.native_handle());
    }
    void notify_one() noexcept { pthread_cond_signal(&changed_); }
    void notify_all() noexcept { pthread_cond_broadcast(&changed_); }

  private:
    pthread_cond_t changed_ = PTHREAD_COND_INITIALIZER;
};

}  // namespace memlab::threads
