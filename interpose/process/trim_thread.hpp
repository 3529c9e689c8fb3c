// MEMLAB_TRIM_AFTER: a thread that gives cached memory back to the driver, even while the program
// makes no calls:
//  - what has been unused for that long;
//  - all that is unused when the program has started a child process, which may need it (it is back
//    before the child has made a context);
//  - all that is unused when little of the device's memory is free: other processes cannot ask.
//
// Created with the first pool. It waits for no work of the program's; where freeing does (a device
// without cuMemFreeAsync) it frees only while the device is idle.
#pragma once

#include <pthread.h>

#include <atomic>
#include <cstdint>

namespace memlab::interpose {

class Memory;

/// Thread-safety: all functions, from any thread.
class TrimThread {
  public:
    TrimThread() = default;
    TrimThread(const TrimThread&) = delete;
    TrimThread& operator=(const TrimThread&) = delete;

    /// Only the first call has an effect. True when a thread was created: call stop() at exit. If
    /// none can be created the pools are not trimmed.
    bool start(Memory& memory, std::uint64_t trim_after_ns);

    /// The process starts a child: wakes the thread. Async-signal-safe.
    void child_starts() noexcept;

    /// On return no driver call of the thread uses a context that is ending, unless one takes
    /// longer than a second.
    void leave_ending_contexts() noexcept;

    /// Call at process end: no driver call of the thread begins after this. Waits for one under
    /// way, but at most a second: the driver may wait for work that never ends. Also called in
    /// signal handlers.
    void stop();

  private:
    static void* run(void* self);
    void loop();
    void trim(bool for_child);

    /// When to give back all that is unused for the same reason the next time: a program that needs
    /// it again each time keeps it for longer and longer.
    struct Pace {
        std::uint64_t next_ns = 0;
        std::uint64_t between_ns = 0;
        std::int64_t growths_seen = 0;
    };
    template <class Wanted>
    void release_unused(Pace& pace, std::uint64_t now_ns, const Wanted& wanted);

    Memory* memory_ = nullptr;
    std::uint64_t trim_after_ns_ = 0;
    std::atomic<bool> started_{false};
    std::atomic<bool> stopped_{false};
    std::atomic<std::uint32_t> child_{0};                ///< a futex: 1 after child_starts()
    pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;  // held while the pools are trimmed

    // The thread's own.
    Pace children_;
    Pace shortages_;
};

}  // namespace memlab::interpose
