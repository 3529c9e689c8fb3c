// CLOCK_MONOTONIC at half its price: the processor's time-stamp counter, brought to the clock's
// scale and held to it.
//
// Guarantees: readings never decrease; each is what CLOCK_MONOTONIC says, to a fraction of a
// microsecond. The counter's rate is measured against the clock, over all the time since the first
// reading, and the counter alone is trusted for a millisecond: then the clock is read again and
// both agree anew. So nothing accumulates, whatever NTP does to the clock, and a program that was
// stopped, suspended or moved to another machine reads the right time at once.
//
// Where the counter cannot be trusted at all (the kernel itself does not keep time by it, or it
// runs at no constant rate) every reading is the clock's.
#pragma once

#include <algorithm>
#include <cstdint>

#include "profiler/clock.hpp"

namespace memlab::profiler {

/// Whether the kernel keeps time by the time-stamp counter, on a processor where it runs at a
/// constant rate through all power states. Reads one small file.
bool counter_keeps_time();

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
    std::uint64_t now() {
        if (use_counter_) {
            const std::uint64_t counter = time_.counter();
            const std::uint64_t ticks = counter - agreed_counter_;  // a step back wraps: too many
            if (ticks < trusted_ticks_) {
                latest_ = std::max(latest_, agreed_ns_ + in_ns(ticks));
                return latest_;
            }
            agree();
        }
        latest_ = std::max(latest_, time_.clock_ns());
        return latest_;
    }

  private:
    __extension__ using Wide = unsigned __int128;

    static constexpr std::uint64_t trusted_ns = 1'000'000;
    /// Over less the rate is not known well enough: reading the two at one moment is a matter of
    /// tens of nanoseconds.
    static constexpr std::uint64_t least_baseline_ns = 4'000'000;
    static constexpr int scale_bits = 32;
    /// A counter of fewer ticks than one in 64 ns keeps no time for us.
    static constexpr std::uint64_t slowest_scale = std::uint64_t{64} << scale_bits;

    std::uint64_t in_ns(std::uint64_t ticks) const {
        return static_cast<std::uint64_t>((static_cast<Wide>(ticks) * scale_) >> scale_bits);
    }

    /// Both at one moment; false when the thread was held up between them.
    bool read_both(std::uint64_t& counter, std::uint64_t& clock) {
        for (int attempt = 0; attempt < 3; ++attempt) {
            const std::uint64_t before = time_.counter();
            clock = time_.clock_ns();
            const std::uint64_t gap = time_.counter() - before;
            if (gap < narrowest_ / 4) {
                narrowest_ = gap;  // what was read at one moment so far, was not
                begin_anew();
            }
            if (gap / 4 <= narrowest_) {
                counter = before + gap / 2;
                return true;
            }
        }
        return false;
    }

    void begin_anew() {
        first_ns_ = 0;
        trusted_ticks_ = 0;
    }

    void agree() {
        std::uint64_t counter = 0;
        std::uint64_t clock = 0;
        if (!read_both(counter, clock)) {
            return;  // another time
        }
        if (trusted_ticks_ != 0) {
            // One thousandth is more than NTP ever turns a clock by. A counter that went at another
            // rate, or went on while the machine slept, is measured anew.
            const std::uint64_t expected = agreed_ns_ + in_ns(counter - agreed_counter_);
            const std::uint64_t error = expected > clock ? expected - clock : clock - expected;
            if (counter < agreed_counter_ || error > 2000 + (clock - agreed_ns_) / 1000) {
                begin_anew();
            }
        }
        if (first_ns_ == 0 || counter <= first_counter_ || clock <= first_ns_) {
            begin_anew();
            first_counter_ = counter;
            first_ns_ = clock;
            return;
        }
        const std::uint64_t ns = clock - first_ns_;
        if (ns < least_baseline_ns) {
            return;
        }
        const auto fine_ns = static_cast<Wide>(ns) << scale_bits;
        const auto scale = fine_ns / (counter - first_counter_);
        if (scale == 0 || scale >= slowest_scale) {
            begin_anew();
            return;
        }
        scale_ = static_cast<std::uint64_t>(scale);
        agreed_counter_ = counter;
        agreed_ns_ = clock;
        trusted_ticks_ = (trusted_ns << scale_bits) / scale_;
    }

    Time time_;
    bool use_counter_;
    std::uint64_t latest_ = 0;
    std::uint64_t agreed_counter_ = 0;
    std::uint64_t agreed_ns_ = 0;
    std::uint64_t trusted_ticks_ = 0;  ///< 0 until the rate is known
    std::uint64_t scale_ = 0;          ///< nanoseconds of a tick, 32 bits behind the point
    std::uint64_t narrowest_ = ~std::uint64_t{0};  ///< ticks from before a clock reading to after
    std::uint64_t first_counter_ = 0;
    std::uint64_t first_ns_ = 0;
};

}  // namespace memlab::profiler
