// The work clock: how often the process gave work to a device. If it still shows what it showed
// before a fence that has completed since, nothing runs on the device, and a free needs no fence at
// all.
//
// Why that is right:
//  - a tick comes after the submitting call returned. Whoever frees memory that submitted work uses
//    does so after that call returned (else plain CUDA could free it before the work as well), so
//    its look at the clock sees the tick;
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
    /// Work was submitted: to be called after the driver's function returned, whatever it answered.
    void tick() { ticks_.fetch_add(1, std::memory_order_relaxed); }

    /// The time, or nothing when work may have been submitted unseen. Read it before recording.
    std::optional<std::uint64_t> now() const {
        if (!trusted_.load(std::memory_order_relaxed)) {
            return std::nullopt;
        }
        return ticks_.load(std::memory_order_relaxed);
    }

    /// Work may go unseen from now on.
    void distrust() { trusted_.store(false, std::memory_order_relaxed); }

    /// Calls counted so far, trusted or not.
    std::uint64_t ticks() const { return ticks_.load(std::memory_order_relaxed); }

  private:
    alignas(64) std::atomic<std::uint64_t> ticks_{0};
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
