// The work clock: how often the process gave work to a device. If it still shows what it showed
// before a fence that has completed since, nothing runs on the device, and a free needs no fence at
// all.
//
// Why that is right:
//  - a call that submits is counted as under way before the driver is entered, and ticks when it
//  has
//    returned. A kernel may tell another thread that it is done, or a callback may free, before the
//    launching call has returned: while any call is under way the clock shows no time, so nothing
//    counts as idle and no fence is shared;
//  - a fence's time is read before the fence is recorded: work that ticked until then was submitted
//    before the record, so the fence covers it.
// The other orders are wrong: a tick before the call lets a fence claim work that is yet to come, a
// look after the record lets it claim work that it does not cover.
//
// Every driver function that submits work is hooked for it (submitting_functions.inc). A program
// that resolves a driver function unknown to memlab may submit work unseen: from then on the clock
// is not trusted in that process, and every free records a fence. One clock for the process: a
// fence covers one context and its peers, so work elsewhere costs a record too many, never one too
// few.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Constant-initialized: works before main.
class WorkClock {
  public:
    /// A call that submits work, from before the driver is entered until it has returned.
    class Submission {
      public:
        explicit Submission(WorkClock& clock) : clock_(clock) { clock_.begin(); }
        ~Submission() { clock_.tick(); }
        Submission(const Submission&) = delete;
        Submission& operator=(const Submission&) = delete;

      private:
        WorkClock& clock_;
    };

    /// The time, or nothing when work may have been submitted unseen or is being submitted now.
    /// Read it before recording.
    std::optional<std::uint64_t> now() const {
        const std::uint64_t state = state_.load(std::memory_order_relaxed);
        if (state >= under_way || !trusted()) {
            return std::nullopt;
        }
        return state;
    }

    /// Work may go unseen from now on.
    void distrust() { trusted_.store(false, std::memory_order_relaxed); }
    bool trusted() const { return trusted_.load(std::memory_order_relaxed); }

    /// Calls that have returned so far, trusted or not.
    std::uint64_t ticks() const { return state_.load(std::memory_order_relaxed) % under_way; }

  private:
    // The calls under way are counted above the ticks, so that one load sees both. 2^48 ticks are
    // nine years of a launch each microsecond.
    static constexpr std::uint64_t under_way = 1ULL << 48;

    // An atomic addition is a full barrier on x86: it is seen before what the driver then tells the
    // device.
    void begin() { state_.fetch_add(under_way, std::memory_order_seq_cst); }
    void tick() { state_.fetch_add(1 - under_way, std::memory_order_relaxed); }

    alignas(64) std::atomic<std::uint64_t> state_{0};
    alignas(64) std::atomic<bool> trusted_{true};
};

extern constinit WorkClock work_clock;

/// True when cuGetProcAddress's `base` names a function that memlab hooks, in some version.
bool is_hooked_function(std::string_view base);

/// True when memlab knows what the driver function does that cuGetProcAddress calls `base`.
bool is_known_function(std::string_view base);

/// The same for an exported symbol, in any version: "cuMemcpyAsync_ptsz", "cuCtxCreate_v4". False
/// for an unlisted version of a function that submits work.
bool is_known_symbol(std::string_view symbol);

}  // namespace memlab::interpose
