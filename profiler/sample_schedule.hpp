// Rate limiter for samples of a device's memory in use.
//
// Frequent enough for the timeline, but at negligible cost: beside running kernels the driver takes
// 30 to 45 us to answer (measured on an H200) and blocks other threads' launches meanwhile. So each
// sample's duration sets the delay until the next: at most a thousandth of the time is spent on
// samples.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace memlab::profiler {

/// When the next sample is due. Thread-safe, lock-free.
class NextSample {
  public:
    /// True for only one of several concurrent callers, once it is due; the next one is due
    /// `at_least_ns` later if that caller never calls set().
    bool claim(std::uint64_t now, std::uint64_t at_least_ns) {
        std::uint64_t next = next_ns_.load(std::memory_order_relaxed);
        return now >= next &&
               next_ns_.compare_exchange_strong(next, now + at_least_ns, std::memory_order_relaxed);
    }
    void set(std::uint64_t next_ns) { next_ns_.store(next_ns, std::memory_order_relaxed); }

  private:
    std::atomic<std::uint64_t> next_ns_{0};
};

/// For one device. Times in ns of one monotonic clock. Thread-safe, lock-free.
class SampleSchedule {
  public:
    static constexpr std::uint64_t min_interval_ns = 5'000'000;
    /// Cap: a thread that was preempted during a sample must not stop the sampling.
    static constexpr std::uint64_t max_interval_ns = 250'000'000;
    static constexpr std::uint64_t interval_per_cost = 1000;

    /// Cheap check before reading the clock for claim(). `counter`: the processor's time-stamp
    /// counter; a million ticks are shorter than any interval.
    bool may_be_due(std::uint64_t counter) {
        if (counter - checked_at_.load(std::memory_order_relaxed) < ticks_between_checks) {
            return false;
        }
        checked_at_.store(counter, std::memory_order_relaxed);
        return true;
    }

    /// Whether the caller must take a sample; true for only one of several concurrent callers.
    bool claim(std::uint64_t now) { return next_.claim(now, min_interval_ns); }

    /// The sample ran from `began` to `ended`.
    void finish(std::uint64_t began, std::uint64_t ended) {
        const std::uint64_t interval =
            std::clamp((ended - began) * interval_per_cost, min_interval_ns, max_interval_ns);
        next_.set(ended + interval);
    }

  private:
    static constexpr std::uint64_t ticks_between_checks = 1'000'000;

    std::atomic<std::uint64_t> checked_at_{0};
    NextSample next_;
};

/// For samples that find the same figure again and again: each doubles the delay until the next, up
/// to a second; another figure resets it. Thread-safe, lock-free.
class IdleSchedule {
  public:
    static constexpr std::uint64_t min_interval_ns = 5'000'000;
    static constexpr std::uint64_t max_interval_ns = 1'000'000'000;

    /// As SampleSchedule::claim().
    bool claim(std::uint64_t now) { return next_.claim(now, min_interval_ns); }

    /// The sample was taken at `now`.
    void finish(std::uint64_t now, std::uint64_t used) {
        const bool changed = used_.exchange(used, std::memory_order_relaxed) != used;
        const std::uint64_t interval =
            changed ? min_interval_ns
                    : std::min(2 * interval_ns_.load(std::memory_order_relaxed), max_interval_ns);
        interval_ns_.store(interval, std::memory_order_relaxed);
        next_.set(now + interval);
    }

  private:
    std::atomic<std::uint64_t> used_{0};
    std::atomic<std::uint64_t> interval_ns_{min_interval_ns};
    NextSample next_;
};

}  // namespace memlab::profiler
