// Limits the time that the ledger spends on measuring to a share of the run's.
//
// The first calls of each kind are measured whatever that share: most kinds have few, and the few
// are what takes the memory of a program. A thousand take 10 to 20 ms, once; beside running
// kernels, where asking takes twenty times as long, the time for them is up sooner.
//
// Only time in which the program computes counts. Else one that waits, for requests or for its turn
// on the GPU, would save up, and spend it while it works.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "trace/ledger_entry.hpp"

namespace memlab::interpose {

/// Times in ns. Thread-safe, lock-free.
class MeasuringBudget {
  public:
    /// 1 % of the first ten seconds, in which programs load most and make their streams; 0.2 % of
    /// what follows.
    static constexpr std::uint64_t early_ns = 10'000'000'000;
    static constexpr std::uint64_t run_per_measuring_early = 100;
    static constexpr std::uint64_t run_per_measuring = 500;
    /// A shorter run counts as one of this length.
    static constexpr std::uint64_t least_run_ns = 2'000'000'000;
    /// Of each kind, whatever the share.
    static constexpr std::uint64_t first_calls = 1000;
    static constexpr std::uint64_t first_calls_ns = 50'000'000;
    /// The kind of most calls may spend a quarter of that, so that the rare ones, which take more
    /// each, find something left.
    static constexpr std::uint64_t parts = 4;

    explicit MeasuringBudget(std::uint64_t start_ns) : start_ns_(start_ns) {}

    /// Whether another measurement may begin. `now_ns` is of the clock that `start_ns` was of;
    /// `processor_ns()`, the processor time of the process, is a system call and asked for only
    /// where it decides.
    template <class ProcessorTime>
    bool allows(trace::LedgerKind kind, std::uint64_t now_ns, const ProcessorTime& processor_ns) {
        const auto index = static_cast<std::size_t>(kind);
        const std::uint64_t calls = calls_[index].fetch_add(1, std::memory_order_relaxed) + 1;
        if (calls <= first_calls &&
            spent_on_[index].load(std::memory_order_relaxed) < first_calls_ns) {
            return true;
        }
        const std::uint64_t needed_ns =
            run_needed(spent_ns_.load(std::memory_order_relaxed), is_most_frequent(index, calls));
        if (needed_ns <= least_run_ns) {
            return true;
        }
        std::atomic<std::uint64_t>& not_before_ns = not_before_ns_[index];
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

    void spend(trace::LedgerKind kind, std::uint64_t ns) {
        spent_on_[static_cast<std::size_t>(kind)].fetch_add(ns, std::memory_order_relaxed);
        spent_ns_.fetch_add(ns, std::memory_order_relaxed);
    }

  private:
    static constexpr std::size_t kinds = static_cast<std::size_t>(trace::ledger_kind_count);

    /// How long a run may have spent this, or of which this is a part.
    static std::uint64_t run_needed(std::uint64_t spent_ns, bool a_part) {
        constexpr std::uint64_t early_budget_ns = early_ns / run_per_measuring_early;
        const std::uint64_t whole_ns = spent_ns * (a_part ? parts : 1);
        return whole_ns <= early_budget_ns
                   ? whole_ns * run_per_measuring_early
                   : early_ns + (whole_ns - early_budget_ns) * run_per_measuring;
    }

    bool is_most_frequent(std::size_t kind, std::uint64_t calls) const {
        for (std::size_t other = 0; other < kinds; ++other) {
            if (other != kind && calls_[other].load(std::memory_order_relaxed) > calls) {
                return false;
            }
        }
        return true;
    }

    const std::uint64_t start_ns_;
    std::atomic<std::uint64_t> spent_ns_{0};
    std::array<std::atomic<std::uint64_t>, kinds> calls_{};
    std::array<std::atomic<std::uint64_t>, kinds> spent_on_{};
    std::array<std::atomic<std::uint64_t>, kinds> not_before_ns_{};
};

}  // namespace memlab::interpose
