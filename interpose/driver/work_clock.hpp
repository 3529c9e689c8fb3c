// The work clock: counts the process's submissions of work to a device. If it shows the same value
// as before a fence that has since completed, the device is idle and a free needs no fence.
//
// Why that is right:
//  - A submitting call is marked as under way before the driver is entered, and ticks when it has
//    returned. A kernel may signal another thread, or a callback may free, before the launching
//    call has returned: while any call is under way the clock has no time, so nothing counts as
//    idle and no fence is shared.
//  - A fence's time is read before the fence is recorded: work that had ticked by then was
//    submitted before the record, so the fence covers it.
//
// The opposite orders are wrong: with a tick before the call a fence would claim work still to be
// submitted; with a read after the record it would claim work that it does not cover.
//
// Every driver function that submits work is hooked for this (submitting_functions.inc). A program
// that resolves an unknown driver function may submit work unseen: from then on the clock is
// distrusted and every free records a fence. There is one clock for the process, while a fence
// covers one context and its peers: work elsewhere costs an unnecessary record, never a missing
// one.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string_view>

namespace memlab::interpose {

/// Thread-safety: all functions, from any thread. Constant-initialized: works before main.
class WorkClock {
  public:
    /// RAII guard around a driver call that submits work.
    class Submission {
      public:
        explicit Submission(WorkClock& clock) : clock_(clock) { clock_.begin(); }
        ~Submission() { clock_.tick(); }
        Submission(const Submission&) = delete;
        Submission& operator=(const Submission&) = delete;

      private:
        WorkClock& clock_;
    };

    /// The time; nullopt when work may have been submitted unseen or a submission is under way.
    /// Read it before recording.
    std::optional<std::uint64_t> now() const {
        const std::uint64_t state = state_.load(std::memory_order_relaxed);
        if (state >= under_way || !trusted()) {
            return std::nullopt;
        }
        return state;
    }

    /// Work may be submitted unseen from now on.
    void distrust() { trusted_.store(false, std::memory_order_relaxed); }
    bool trusted() const { return trusted_.load(std::memory_order_relaxed); }

    /// Number of submissions so far, trusted or not.
    std::uint64_t ticks() const { return state_.load(std::memory_order_relaxed) % under_way; }

  private:
    // Calls under way are counted in the upper 16 bits, so that one load reads both. 2^48 ticks are
    // nine years of a launch each microsecond.
    static constexpr std::uint64_t under_way = 1ULL << 48;

    // An atomic addition is a full barrier on x86: it is visible before anything that the driver
    // then submits.
    void begin() { state_.fetch_add(under_way, std::memory_order_seq_cst); }
    void tick() { state_.fetch_add(1 - under_way, std::memory_order_relaxed); }

    alignas(64) std::atomic<std::uint64_t> state_{0};
    alignas(64) std::atomic<bool> trusted_{true};
};

extern constinit WorkClock work_clock;

/// True when `base`, a name for cuGetProcAddress, is hooked in some version.
bool is_hooked_function(std::string_view base);

/// True when memlab knows the driver function `base` (a name for cuGetProcAddress).
bool is_known_function(std::string_view base);

/// "cuMemcpyHtoDAsync_v2_ptsz" -> "cuMemcpyHtoDAsync".
std::string_view without_version(std::string_view symbol);

/// is_known_function() for an exported symbol of any version: "cuMemcpyAsync_ptsz",
/// "cuCtxCreate_v4". False for an unlisted version of a function that submits work.
bool is_known_symbol(std::string_view symbol);

}  // namespace memlab::interpose
