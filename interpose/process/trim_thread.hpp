// MEMLAB_TRIM_AFTER: a thread that ticks the pools, so that cached memory is released even while
// the program makes no calls.
//
// Created with the first pool, and only when the option is set; memlab has no other thread. It
// blocks all signals, so that the program's handlers never run on it, and releases memory only
// while the device is idle, because the driver waits for the device in that.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace memlab::interpose {

class Memory;

/// Thread-safety: start() and stop() from any thread.
class TrimThread {
  public:
    TrimThread() = default;
    TrimThread(const TrimThread&) = delete;
    TrimThread& operator=(const TrimThread&) = delete;

    /// Only the first call has an effect. True when a thread was created: call stop() at exit. If
    /// none can be created the pools are not trimmed.
    bool start(Memory& memory, std::uint64_t trim_after_ns);

    /// Call at process end: no driver call of the thread begins after this. Waits for one under
    /// way, but at most a second: the driver may wait for work that never ends. Also called in
    /// signal handlers.
    void stop();

  private:
    static void* run(void* self);
    void loop();
    void trim();

    Memory* memory_ = nullptr;
    std::uint64_t interval_ns_ = 0;
    std::atomic<bool> started_{false};
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // held while the pools are trimmed
    pthread_cond_t stopped_changed_{};
    std::atomic<bool> stopped_{false};
};

}  // namespace memlab::interpose
