// Limits the time that the ledger spends on measuring to a share of the run's.
//
// Only time in which the program computes counts. Else one that waits, for requests or for its turn
// on the GPU, would save up, and spend it while it works.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>

#include "trace/ledger_entry.hpp"

namespace memlab::interpose {

/// Times in ns. Thread-safe, lock-free.
class MeasuringBudget {
  public:
    /// 0.2 % of the run's time; events and streams, which are many and small, get a quarter of it.
    static constexpr std::uint64_t run_per_measuring = 500;
    static constexpr std::uint64_t run_per_measuring_small = 2000;
    /// A shorter run counts as one of this length: most is loaded then.
    static constexpr std::uint64_t least_run_ns = 2'000'000'000;

    explicit MeasuringBudget(std::uint64_t start_ns) : start_ns_(start_ns) {}

    /// Whether another measurement may begin. `now_ns` is of the clock that `start_ns` was of;
    /// `processor_ns()`, the processor time of the process, is a system call and asked for only
    /// where it decides.
    template <class ProcessorTime>
    bool allows(trace::LedgerKind kind, std::uint64_t now_ns, const ProcessorTime& processor_ns) {
        const bool small = is_small(kind);
        const std::uint64_t needed_ns = spent_ns_.load(std::memory_order_relaxed) *
                                        (small ? run_per_measuring_small : run_per_measuring);
        if (needed_ns <= least_run_ns) {
            return true;
        }
        std::atomic<std::uint64_t>& not_before_ns = not_before_ns_[small ? 1 : 0];
        if (now_ns < not_before_ns.load(std::memory_order_relaxed)) {
            return false;
        }
        std::uint64_t run_ns = now_ns - start_ns_;
        if (needed_ns <= run_ns) {
            run_ns = std::min<std::uint64_t>(run_ns, processor_ns());
        }
        if (needed_ns <= run_ns) {
            return true;
        }
        // No sooner: the run's time is at most that of the clock.
        not_before_ns.store(now_ns + (needed_ns - run_ns), std::memory_order_relaxed);
        return false;
    }

    void spend(std::uint64_t ns) { spent_ns_.fetch_add(ns, std::memory_order_relaxed); }

  private:
    static bool is_small(trace::LedgerKind kind) {
        return kind == trace::LedgerKind::event || kind == trace::LedgerKind::stream ||
               kind == trace::LedgerKind::other;
    }

    const std::uint64_t start_ns_;
    std::atomic<std::uint64_t> spent_ns_{0};
    std::array<std::atomic<std::uint64_t>, 2> not_before_ns_{};
};

}  // namespace memlab::interpose
