// MEMLAB_TRIM_AFTER: the thread that lets the pools know that time passes, so that cached memory
// goes back while the program does nothing at all.
//
// Made with the first pool, and only when the option is set: memlab has no other thread. It blocks
// all signals, so that the program's handlers never run on it, and gives memory back only while the
// device is idle, since the driver waits for the device in that.
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

    /// Once; later calls do nothing. True when there is a thread now: stop it at exit. When none
    /// can be made, the pools are not trimmed.
    bool start(Memory& memory, std::uint64_t trim_after_ns);

    /// The process ends: no driver call of the thread begins after this. Waits for one that has
    /// begun, but not for ever: the driver may wait for work that never ends. In signal handlers,
    /// too.
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
