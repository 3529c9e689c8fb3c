// MEMLAB_TRIM_AFTER: a thread that gives cached memory back to the driver, even while the program
// makes no calls:
//  - what has been unused for that long;
//  - all that is unused when the program has started a child process, which may need it (it is back
//    before the child has made a context);
//  - all that is unused when another process under memlab asks for it (memory_requests.hpp);
//  - all that is unused when little of the device's memory is free, if the time is a long one:
//    processes without memlab cannot ask.
//
// Created with the first pool. It waits for no work of the program's; where freeing does (a device
// without cuMemFreeAsync) it frees only while the device is idle. It does not wait for captures
// either: its calls are made in relaxed mode, which no capture minds.
//
// While nothing is held that could go back, and no free is pending, it sleeps until that changes
// (Memory::on_unused). Else it wakes when something is due, or after poll_ns where only looking
// tells.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "threads/mutex.hpp"

namespace memlab::interpose {

class Memory;
class MemoryRequests;

/// Thread-safety: all functions, from any thread.
class TrimThread {
  public:
    explicit TrimThread(MemoryRequests& requests) : requests_(requests) {}
    TrimThread(const TrimThread&) = delete;
    TrimThread& operator=(const TrimThread&) = delete;

    /// Only the first call has an effect. True when a thread was created: call stop() at exit. If
    /// none can be created the pools are not trimmed.
    bool start(Memory& memory, std::uint64_t trim_after_ns);

    /// The process starts a child: wakes the thread. Async-signal-safe.
    void child_starts() noexcept;

    /// Gives back, in the calling thread, what is unused of the pools that have more than `kept`
    /// bytes of it, and goes on until `until_ns` where frees are not complete yet; returns how
    /// much. Where that would wait for the GPU, nothing. May throw std::bad_alloc.
    std::uint64_t give_back(Memory& memory, std::uint64_t kept, std::uint64_t until_ns);

    /// Call at process end: no driver call of the thread begins after this. Waits for one under
    /// way, but at most a second: the driver may wait for work that never ends. Also called in
    /// signal handlers.
    void stop();

  private:
    static void* run(void* self);
    void loop();
    std::uint64_t poll_ns() const;
    bool has_work();
    std::uint32_t devices_to_serve();
    void wait(std::uint64_t until_ns, bool* asked);
    std::uint64_t trim(bool for_child, bool asked);

    /// When to give back all that is unused for the same reason the next time: a program that needs
    /// it again each time keeps it for longer each time, up to ten seconds.
    struct Pace {
        std::uint64_t next_ns = 0;
        std::uint64_t between_ns = 0;
        std::int64_t growths_seen = 0;
    };
    template <class Wanted>
    void release_unused(Pace& pace, std::uint64_t now_ns, const Wanted& wanted);
    template <class Wanted>
    bool release_unused(const Wanted& wanted, std::int64_t* growths);

    MemoryRequests& requests_;
    Memory* memory_ = nullptr;
    std::uint64_t trim_after_ns_ = 0;
    std::atomic<bool> started_{false};
    std::atomic<bool> stopped_{false};
    std::atomic<std::uint64_t> child_ns_{0};  ///< when child_starts() was called
    threads::Mutex mutex_;                    // held while the pools are trimmed

    // The thread's own.
    std::vector<std::uint32_t> device_bits_;  ///< of MemoryRequests, by device
    Pace children_;
    Pace shortages_;
};

}  // namespace memlab::interpose
