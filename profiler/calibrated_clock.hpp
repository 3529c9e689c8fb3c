// CLOCK_MONOTONIC at half its cost: the time-stamp counter, calibrated against the clock.
//
// Guarantees: readings never decrease and differ from CLOCK_MONOTONIC by a fraction of a
// microsecond. The counter's rate is measured against the clock over the whole time since the first
// reading. After a millisecond the clock is read again and the counter resynchronized. So errors do
// not accumulate, whatever NTP does to the clock, and a program that was stopped, suspended or
// migrated to another machine reads the right time at once.
//
// If the counter is unusable (not the kernel's clock source, or not of constant rate), every
// reading is the clock's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "profiler/clock.hpp"

namespace memlab::profiler {

/// Whether the time-stamp counter is the kernel's clock source and invariant (constant rate in all
/// power states). Reads one small file.
bool counter_is_clock_source();

/// The processor's counter and CLOCK_MONOTONIC.
struct MachineTime {
    static std::uint64_t counter() { return __builtin_ia32_rdtsc(); }
    static std::uint64_t clock_ns() { return monotonic_ns(); }
};

/// Thread-safety: none, the recorder's lock serializes; readings on different processors agree.
/// `Time` has the functions of MachineTime; tests bring their own.
template <class Time>
class CalibratedClock {
  public:
    explicit CalibratedClock(bool use_counter, Time time = {})
        : time_(time), use_counter_(use_counter) {}

    /// Nanoseconds of CLOCK_MONOTONIC.
    [[gnu::always_inline]] std::uint64_t now() {
        if (use_counter_) {
            const std::uint64_t counter = time_.counter();
            const std::uint64_t ticks = counter - synced_counter_;  // wraps if it stepped back
            if (ticks < trusted_ticks_) {
                latest_ = std::max(latest_, synced_ns_ + to_ns(ticks));
                return latest_;
            }
            resync();
        }
        latest_ = std::max(latest_, time_.clock_ns());
        return latest_;
    }

  private:
    __extension__ using Wide = unsigned __int128;

    static constexpr std::uint64_t trusted_ns = 1'000'000;
    /// Shorter baselines give too coarse a rate: reading both takes tens of nanoseconds.
    static constexpr std::uint64_t min_baseline_ns = 4'000'000;
    static constexpr int scale_bits = 32;
    /// Counters with less than one tick in 64 ns are not used.
    static constexpr std::uint64_t max_scale = std::uint64_t{64} << scale_bits;

    std::uint64_t to_ns(std::uint64_t ticks) const {
        return static_cast<std::uint64_t>((static_cast<Wide>(ticks) * scale_) >> scale_bits);
    }

    /// Reads both at about the same time; false if the thread was preempted in between.
    bool read_both(std::uint64_t& counter, std::uint64_t& clock) {
        for (int attempt = 0; attempt < 3; ++attempt) {
            const std::uint64_t before = time_.counter();
            clock = time_.clock_ns();
            const std::uint64_t gap = time_.counter() - before;
            if (gap < min_gap_ / 4) {
                min_gap_ = gap;  // earlier pairs were not close enough
                restart();
            }
            if (gap / 4 <= min_gap_) {
                counter = before + gap / 2;
                return true;
            }
        }
        return false;
    }

    /// Discards the calibration.
    void restart() {
        first_ns_ = 0;
        trusted_ticks_ = 0;
    }

    [[gnu::noinline]] void resync() {
        std::uint64_t counter = 0;
        std::uint64_t clock = 0;
        if (!read_both(counter, clock)) {
            return;  // tried again at the next reading
        }
        if (trusted_ticks_ != 0) {
            // One thousandth exceeds any slew of NTP: the counter's rate changed, or it ran on
            // while the machine slept.
            const std::uint64_t expected = synced_ns_ + to_ns(counter - synced_counter_);
            const std::uint64_t error = expected > clock ? expected - clock : clock - expected;
            if (counter < synced_counter_ || error > 2000 + (clock - synced_ns_) / 1000) {
                restart();
            }
        }
        if (first_ns_ == 0 || counter <= first_counter_ || clock <= first_ns_) {
            restart();
            first_counter_ = counter;
            first_ns_ = clock;
            return;
        }
        const std::uint64_t ns = clock - first_ns_;
        if (ns < min_baseline_ns) {
            return;
        }
        const auto fine_ns = static_cast<Wide>(ns) << scale_bits;
        const auto scale = fine_ns / (counter - first_counter_);
        if (scale == 0 || scale >= max_scale) {
            restart();
            return;
        }
        scale_ = static_cast<std::uint64_t>(scale);
        synced_counter_ = counter;
        synced_ns_ = clock;
        trusted_ticks_ = (trusted_ns << scale_bits) / scale_;
    }

    Time time_;
    bool use_counter_;
    std::uint64_t latest_ = 0;
    std::uint64_t synced_counter_ = 0;
    std::uint64_t synced_ns_ = 0;
    std::uint64_t trusted_ticks_ = 0;            ///< 0 until the rate is known
    std::uint64_t scale_ = 0;                    ///< nanoseconds per tick, 32.32 fixed point
    std::uint64_t min_gap_ = ~std::uint64_t{0};  ///< ticks from before a clock reading to after
    std::uint64_t first_counter_ = 0;
    std::uint64_t first_ns_ = 0;
};

}  // namespace memlab::profiler
