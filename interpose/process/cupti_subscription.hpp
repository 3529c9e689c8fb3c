// Manages memlab's CUPTI subscription. CUPTI takes one subscriber per process, or since 13.3
// several that allow for it.
//
// Subscribing costs milliseconds at start, and other tools need the subscription: kineto (PyTorch's
// profiler) tries once and never again. So memlab subscribes only for what nothing else tells:
//   auto  for MEMLAB_AUDIT and MEMLAB_KERNELS, unless another tool is in the process;
//   on    always, unless the program uses CUPTI's activities already; with an audit, and with the
//         runtime's names of allocations.
// In both cases it unsubscribes for good when another tool subscribes through a function that
// memlab interposes (hooks/cupti.cpp), and in auto also when such a tool is loaded later. The
// report says what was missed because of that.
//
// libcupti is opened when the session has started, after a successful cuInit, with no memlab lock
// held. At exit memlab unsubscribes in a handler that was registered after CUDA's own, so that
// CUPTI still works when it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "profiler/cupti/subscriber.hpp"
#include "threads/mutex.hpp"

namespace memlab::interpose {

class Memory;

/// Thread-safety: all functions, from any thread.
class CuptiSubscription {
  public:
    /// Subscribes if the settings and the process allow it. Call once, without any lock. If it
    /// returns true, call finish() at exit.
    bool start(Memory& memory) noexcept;

    /// Checks whether another tool was loaded since memlab subscribed; in auto memlab then yields.
    /// Takes the loader's lock: call without any of memlab's.
    void detect_other_profilers() noexcept;
    /// Yields if detect_other_profilers() found a reason. Call where CUPTI may be called: in a
    /// hook, without a lock.
    void yield_if_requested() noexcept {
        if (yield_requested_.load(std::memory_order_relaxed)) {
            yield_subscription();
        }
    }

    /// Yields to another tool: flushes, unsubscribes for good and concludes the audit. Only the
    /// first call has an effect.
    void yield_subscription() noexcept;

    /// Whether another subscriber that allows for several can subscribe beside memlab.
    bool shares_with_others() const;

    /// Call before a context is destroyed: fetches CUPTI's pending records of it.
    void before_context_ends() noexcept;

    /// Call at process end: unsubscribes and records the audit's result.
    void finish() noexcept;

  private:
    std::string reason_not_to_subscribe(const Memory& memory) const;
    void conclude_audit() MEMLAB_REQUIRES(yield_mutex_);
    void record_coverage(bool audited, const std::string& because, std::uint64_t count,
                         std::uint64_t bytes);

    Memory* memory_ = nullptr;
    std::atomic<profiler::cupti::Subscriber*> subscriber_{nullptr};  ///< null: not subscribed yet
    std::atomic<bool> yield_requested_{false};
    std::atomic<unsigned long long> objects_seen_{0};
    bool automatic_ = true;
    bool audit_ = false;
    std::string library_;
    threads::Mutex yield_mutex_;  ///< held while unsubscribing; other threads wait
    std::string yield_reason_ MEMLAB_GUARDED_BY(yield_mutex_);
};

/// Set once the program has set up CUPTI's activities itself: memlab's would take their place.
inline constinit std::atomic<bool> activities_of_program{false};

/// The name of another profiler in the process; empty: none. Takes the loader's lock.
std::string other_profiler();

/// The display name of the profiler that a library with this file name ("libtorch_cpu.so") is or
/// contains; null: none.
const char* profiler_of_file(const char* file_name);

}  // namespace memlab::interpose
