// Replaces the pool's condition variable in tests that run several calls on one thread. The linker
// substitutes this file's functions for those of pthread_cond_t (see CMakeLists.txt); without an
// installed Notification they call the originals.
#pragma once

namespace memlab::model_check {

class Notification {
  public:
    Notification() = default;
    Notification(const Notification&) = delete;
    Notification& operator=(const Notification&) = delete;
    virtual ~Notification() = default;

    /// True when wait_for_notification() can let others run.
    virtual bool in_call() const = 0;
    /// Returns after notified(); called without the lock.
    virtual void wait_for_notification() = 0;
    virtual void notified() = 0;

    /// Of the calling thread; null: none.
    static void install(Notification* notification);
};

}  // namespace memlab::model_check
