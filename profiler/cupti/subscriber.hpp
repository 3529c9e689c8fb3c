// memlab's CUPTI subscription, of which there can be one per process. Since CUPTI 13.3 and driver
// 610 others may subscribe beside it, if they allow for several as memlab does.
//
// It serves three purposes. Callbacks around the runtime's memory functions give the events of
// hooked driver calls the name of the runtime function. MEMORY2 records feed the audit. Records of
// kernels, copies and fills become, if enabled, Work in the recording, in the recording's clock.
//
// CUPTI calls back from its own threads until the process ends: a Subscriber and its buffers are
// never destroyed, and its callbacks take no lock but the recorder's and their own. CUPTI is never
// called with a lock of memlab's held.
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
    /// Whether the calling thread is in one of memlab's hooks, so that its driver calls are
    /// memlab's own.
    bool (*inside_memlab)() = nullptr;
};

/// Thread-safety: all functions, from any thread. One per process.
class Subscriber {
  public:
    /// `library` must be usable.
    Subscriber(const Library& library, Recorder& recorder, const SubscriberOptions& options);
    Subscriber(const Subscriber&) = delete;
    Subscriber& operator=(const Subscriber&) = delete;

    /// Subscribes and enables what the options select. Returns an empty text, or the error as a
    /// sentence, with nothing enabled. Call once.
    std::string subscribe() noexcept;

    bool subscribed() const;
    /// Whether another subscriber that allows for several can subscribe beside this one.
    bool shares_cupti() const;

    /// Waits until CUPTI has delivered all completed records. Not from a callback.
    void flush() noexcept;

    /// Flushes, disables everything and unsubscribes, for good. True for the call that did so, the
    /// first. libcupti stays usable for a next subscriber (no cuptiFinalize).
    bool unsubscribe() noexcept;

    Audit& audit();
    /// Records that CUPTI dropped, for lack of a buffer or otherwise.
    std::uint64_t lost_records() const;

    /// In a forked child: drops the subscription, which stays the parent's.
    static void forget_after_fork() noexcept;

  private:
    class Impl;
    Impl* const impl_;  ///< never destroyed, nor is the subscriber
};

}  // namespace memlab::profiler::cupti
