// memlab as CUPTI's subscriber: in a process there can be one.
//
// It gets memlab three things. Callbacks around the runtime's memory functions tell each
// hooked driver call which function the program called. MEMORY2 records feed the audit. Records of
// kernels, copies and fills, on request, become Work in the recording, in the recording's clock.
//
// CUPTI calls back from threads of its own, and until the very end of the process: a Subscriber is
// never destroyed, its buffers are never given back, and its callbacks take no lock but the
// recorder's and their own. CUPTI is never called under a lock of memlab's.
#pragma once

#include <cstdint>
#include <string>

#include "profiler/cupti/audit.hpp"
#include "profiler/cupti/library.hpp"
#include "profiler/recorder.hpp"

namespace memlab::profiler::cupti {

struct SubscriberOptions {
    bool audit = false;
    bool work = false;
    /// Whether the calling thread is in one of memlab's hooks; what reaches the driver then is
    /// memlab's doing.
    bool (*inside_memlab)() = nullptr;
};

/// Thread-safety: all functions, from any thread. One per process.
class Subscriber {
  public:
    /// `library` must be usable.
    Subscriber(const Library& library, Recorder& recorder, const SubscriberOptions& options);
    Subscriber(const Subscriber&) = delete;
    Subscriber& operator=(const Subscriber&) = delete;

    /// Subscribes and switches on what was asked for. Empty when all of it worked; else a sentence,
    /// and nothing of it is on. Call once.
    std::string subscribe() noexcept;

    bool subscribed() const;

    /// Waits until CUPTI has delivered what it has. Not from a callback.
    void flush() noexcept;

    /// For good: delivers, switches everything off, unsubscribes. The first call does it; true for
    /// that one. libcupti stays as it is (cuptiFinalize would end it for whoever
    /// comes next).
    bool unsubscribe() noexcept;

    Audit& audit();
    /// Records that CUPTI lost, or for which there was no buffer.
    std::uint64_t lost_records() const;

    /// In a forked child: the subscription is the parent's.
    static void forget_after_fork() noexcept;

  private:
    class Impl;
    Impl* const impl_;  ///< never destroyed, nor is the subscriber
};

}  // namespace memlab::profiler::cupti
