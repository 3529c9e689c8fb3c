// Tracks stream captures and keeps memlab's driver calls out of them.
//
// A fence recorded inside a capture would invalidate it. So cuStreamBeginCapture takes the gate
// exclusively and memlab's own unsafe calls hold it shared: no capture begins between the check and
// the call. A call that waits for the device must not hold the gate (the device may wait for work
// submitted after the next capture) and runs in relaxed mode instead. Lock order: pool -> gate.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <utility>

#include "interpose/driver/cuda_abi.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread.
class CaptureGate {
  public:
    /// Held around the check for a capture and the call that must stay out of it. Not recursive.
    class Shared {
      public:
        explicit Shared(CaptureGate& gate) : gate_(gate) { pthread_rwlock_rdlock(&gate_.lock_); }
        ~Shared() { pthread_rwlock_unlock(&gate_.lock_); }
        Shared(const Shared&) = delete;
        Shared& operator=(const Shared&) = delete;

        /// True while any stream of the process captures. While this is held it can only change to
        /// false.
        bool capturing() const { return gate_.capturing(); }

      private:
        CaptureGate& gate_;
    };

    /// True while any stream of the process captures. Without the gate the answer may be outdated.
    bool capturing() const { return active_.load(std::memory_order_acquire) != 0; }

    /// True while one of them began in another mode than relaxed: then plain CUDA refuses
    /// allocations to threads whose own mode is not relaxed either, to some or all of them. Without
    /// the gate the answer may be outdated.
    bool capturing_strictly() const { return strict_.load(std::memory_order_acquire) != 0; }

    /// Runs the real cuStreamBeginCapture* with the gate held exclusively. `context` is the
    /// stream's; `relaxed`: whether the capture's mode is.
    template <class Begin>
    CUresult begin(CUstream stream, bool per_thread, CUcontext context, bool relaxed,
                   const Begin& real_begin) {
        const Exclusive exclusive(lock_);
        const CUresult result = real_begin();
        if (result == CUDA_SUCCESS) {
            insert(stream, per_thread, {context, relaxed});
        }
        return result;
    }

    /// Captures may begin and end unseen: from now on one counts as under way for good.
    void assume_one() {
        const threads::LockGuard lock(streams_mutex_);
        lost_one_ = true;
        update_count();
    }

    /// The stream's capture ended, failed or was destroyed. True when it was the last one.
    bool end(CUstream stream, bool per_thread);

    /// The context was destroyed or reset, and its streams' captures with it. Returns as end().
    bool end_all(CUcontext context);

  private:
    class Exclusive {
      public:
        explicit Exclusive(pthread_rwlock_t& lock) : lock_(lock) { pthread_rwlock_wrlock(&lock_); }
        ~Exclusive() { pthread_rwlock_unlock(&lock_); }
        Exclusive(const Exclusive&) = delete;
        Exclusive& operator=(const Exclusive&) = delete;

      private:
        pthread_rwlock_t& lock_;
    };

    using Key = std::pair<CUstream, std::uint32_t>;  // the per-thread stream is one per thread
    static Key make_key(CUstream stream, bool per_thread);
    struct Capture {
        CUcontext context;
        bool relaxed;
    };
    void insert(CUstream stream, bool per_thread, Capture capture) noexcept;
    void update_count() MEMLAB_REQUIRES(streams_mutex_);

    pthread_rwlock_t lock_ = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
    std::atomic<int> active_{0};
    std::atomic<int> strict_{0};
    threads::Mutex streams_mutex_;
    std::map<Key, Capture> streams_ MEMLAB_GUARDED_BY(streams_mutex_);
    bool lost_one_ MEMLAB_GUARDED_BY(streams_mutex_) =
        false;  ///< not in streams_: one counts as under way for good
};

}  // namespace memlab::interpose
