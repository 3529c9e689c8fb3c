// When the driver is asked how much of a device is in use.
//
// Often enough for the timeline, but never so often that the asking is felt: beside running kernels
// the driver takes 30 to 45 us for an answer (measured on an H200), and holds up the launches of
// other threads meanwhile. So a sample decides when the next one may be: a thousandth of the
// time at most goes into them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace memlab::interpose {

/// Of one device. Times in ns of one clock that never goes back. Thread-safe, without waiting.
class SampleSchedule {
  public:
    static constexpr std::uint64_t least_interval_ns = 5'000'000;
    /// A thread that was held up in the middle of a sample says nothing about the next.
    static constexpr std::uint64_t max_interval_ns = 250'000'000;
    static constexpr std::uint64_t interval_per_cost = 1000;

    /// Whether it is worth reading the clock for take(). `counter`: the processor's time-stamp
    /// counter, which is cheaper to read; a million of its ticks are less than any interval.
    bool worth_a_look(std::uint64_t counter) {
        if (counter - looked_at_.load(std::memory_order_relaxed) < ticks_between_looks) {
            return false;
        }
        looked_at_.store(counter, std::memory_order_relaxed);
        return true;
    }

    /// Whether the caller is to take a sample; true for one of those that ask at the same time.
    bool take(std::uint64_t now) {
        std::uint64_t next = next_ns_.load(std::memory_order_relaxed);
        return now >= next && next_ns_.compare_exchange_strong(next, now + least_interval_ns,
                                                               std::memory_order_relaxed);
    }

    /// The sample took from `began` to `ended`.
    void took(std::uint64_t began, std::uint64_t ended) {
        const std::uint64_t interval =
            std::clamp((ended - began) * interval_per_cost, least_interval_ns, max_interval_ns);
        next_ns_.store(ended + interval, std::memory_order_relaxed);
    }

  private:
    static constexpr std::uint64_t ticks_between_looks = 1'000'000;

    std::atomic<std::uint64_t> looked_at_{0};
    std::atomic<std::uint64_t> next_ns_{0};
};

}  // namespace memlab::interpose
