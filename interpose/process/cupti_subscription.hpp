// Whether memlab is CUPTI's only subscriber, and when it makes way.
//
// To subscribe costs milliseconds when a process starts, and other tools want to: kineto (PyTorch's
// profiler) asks once and never again. So memlab subscribes only for what nothing else tells:
//   auto  for MEMLAB_AUDIT and MEMLAB_KERNELS, unless another tool is in the process;
//   on    always; with an audit, and with the runtime's names of allocations.
// In both cases it makes way, for good, the moment that somebody else subscribes through a
// function that memlab interposes (hooks/cupti.cpp), and in auto when such a tool is loaded later.
// What was not seen because of that is said in the report.
//
// libcupti is opened when the session has started, after a successful cuInit, with no lock of ours
// held. At exit it unsubscribes in a handler that was registered after CUDA's own, so that
// CUPTI still works when it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>

#include "profiler/cupti/subscriber.hpp"

namespace memlab::interpose {

class Memory;

/// Thread-safety: all functions, from any thread.
class CuptiSubscription {
  public:
    /// Subscribes where the settings and the process allow it. Call once, without any lock.
    /// True when it did: finish() at exit.
    bool start(Memory& memory) noexcept;

    /// Whether other tools have been loaded since memlab subscribed; in auto it will make way.
    /// Takes the loader's lock: call without any of ours.
    void look_for_others() noexcept;
    /// Makes way if there is a reason to. Call where CUPTI may be called: in a hook, without a
    /// lock.
    void make_way_if_wanted() noexcept {
        if (way_wanted_.load(std::memory_order_relaxed)) {
            make_way();
        }
    }

    /// Another tool subscribes: flushes, unsubscribes for good and concludes the audit. The first
    /// call does it.
    void make_way() noexcept;

    /// A context is about to go: what CUPTI knows of it is fetched first.
    void before_context_ends() noexcept;

    /// The process ends: unsubscribes, and says what was found.
    void finish() noexcept;

  private:
    std::string reason_not_to_subscribe(const Memory& memory) const;
    void conclude();
    void cover(bool audited, const std::string& because, std::uint64_t count, std::uint64_t bytes);

    Memory* memory_ = nullptr;
    std::atomic<profiler::cupti::Subscriber*> subscriber_{nullptr};  ///< null: never subscribed
    std::atomic<bool> way_wanted_{false};
    std::atomic<unsigned long long> objects_seen_{0};
    bool automatic_ = true;
    bool audit_ = false;
    std::string library_;
    std::mutex leaving_;  ///< one thread makes way; the others wait until it has
    std::string left_for_;
};

/// A profiler that is in the process, for the report; empty: none. Takes the loader's lock.
std::string other_profiler();

/// Whether a library of this file name is a profiler that uses CUPTI, or carries one:
/// "libtorch_cpu.so"; null when it is not, else what it is called.
const char* profiler_of_file(const char* file_name);

}  // namespace memlab::interpose
