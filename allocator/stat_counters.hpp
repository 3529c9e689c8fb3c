// The counters behind PoolStats, and their updates. They keep two invariants: peak >= current, and
// current == allocated - freed.
//
// Each allocation and each free changes a dozen statistics. Kept as PoolStats has them they lie in
// ten cache lines, more than the pool changes otherwise, and all of them move to the core of the
// next thread. Here they are two: values that change together are adjacent, and those that follow
// from others (freed, most of "all") are computed when the statistics are read.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "allocator/pool_stats.hpp"

namespace memlab::allocator {

/// The statistics that are kept for small and for large blocks, those first that most allocations
/// and frees change.
enum class Counter : std::uint8_t {
    allocation,
    active,
    inactive_split,
    allocated_bytes,
    active_bytes,
    inactive_split_bytes,
    requested_bytes,
    segment,
    reserved_bytes,
};

struct CountedStat {
    const char* name;
    StatByPool PoolStats::*stat;
};

/// In the order of Counter.
inline constexpr std::array counted_stats{
    CountedStat{"allocation", &PoolStats::allocation},
    CountedStat{"active", &PoolStats::active},
    CountedStat{"inactive_split", &PoolStats::inactive_split},
    CountedStat{"allocated_bytes", &PoolStats::allocated_bytes},
    CountedStat{"active_bytes", &PoolStats::active_bytes},
    CountedStat{"inactive_split_bytes", &PoolStats::inactive_split_bytes},
    CountedStat{"requested_bytes", &PoolStats::requested_bytes},
    CountedStat{"segment", &PoolStats::segment},
    CountedStat{"reserved_bytes", &PoolStats::reserved_bytes},
};

/// Thread-safety: none; the pool's lock serializes.
class StatCounters {
  public:
    void increase(Counter counter, bool small, std::uint64_t amount) noexcept {
        const auto by = static_cast<std::int64_t>(amount);
        const std::int64_t now = at(current_[small], counter) += by;
        at(allocated_[small], counter) += by;
        raise(at(peak_[small], counter), now);
        raise(at(peak_of_all_, counter), now + at(current_[!small], counter));
    }

    void decrease(Counter counter, bool small, std::uint64_t amount) noexcept {
        at(current_[small], counter) -= static_cast<std::int64_t>(amount);
    }

    /// Sets the counter to `value` by one net change, as PyTorch counts inactive_split.
    void set_current(Counter counter, bool small, std::uint64_t value) noexcept {
        const std::int64_t by = static_cast<std::int64_t>(value) - at(current_[small], counter);
        if (by > 0) {
            increase(counter, small, static_cast<std::uint64_t>(by));
        } else {
            at(current_[small], counter) += by;
        }
    }

    /// Counts everything current as freed.
    void clear_current() noexcept { current_ = {}; }

    /// Of small or of large blocks.
    std::uint64_t current(Counter counter, bool small) const noexcept {
        return static_cast<std::uint64_t>(at(current_[small], counter));
    }
    /// Of all blocks.
    std::uint64_t current(Counter counter) const noexcept {
        return current(counter, false) + current(counter, true);
    }
    std::uint64_t peak(Counter counter) const noexcept {
        return static_cast<std::uint64_t>(at(peak_of_all_, counter));
    }

    StatByPool stat(Counter counter) const noexcept {
        const auto make = [](std::int64_t current, std::int64_t peak, std::int64_t allocated) {
            return Stat{current, peak, allocated, allocated - current};
        };
        const auto of = [&](bool small) {
            return make(at(current_[small], counter), at(peak_[small], counter),
                        at(allocated_[small], counter));
        };
        const Stat small = of(true);
        const Stat large = of(false);
        return {make(small.current + large.current, at(peak_of_all_, counter),
                     small.allocated + large.allocated),
                small, large};
    }

  private:
    // A cache line and the two that change rarely.
    struct alignas(64) Row {
        std::array<std::int64_t, counted_stats.size()> of{};
    };

    static std::int64_t& at(Row& row, Counter counter) noexcept {
        return row.of[static_cast<std::size_t>(counter)];
    }
    static std::int64_t at(const Row& row, Counter counter) noexcept {
        return row.of[static_cast<std::size_t>(counter)];
    }
    static void raise(std::int64_t& peak, std::int64_t now) noexcept {
        if (now > peak) {
            peak = now;
        }
    }

    // By `small`.
    std::array<Row, 2> current_{};
    std::array<Row, 2> allocated_{};
    std::array<Row, 2> peak_{};
    Row peak_of_all_{};
};

inline void increase(Stat& stat, std::uint64_t amount) noexcept {
    const auto by = static_cast<std::int64_t>(amount);
    stat.current += by;
    stat.allocated += by;
    stat.peak = std::max(stat.peak, stat.current);
}

inline void decrease(Stat& stat, std::uint64_t amount) noexcept {
    const auto by = static_cast<std::int64_t>(amount);
    stat.current -= by;
    stat.freed += by;
}

/// Counts everything current as freed.
inline void clear_current(Stat& stat) noexcept {
    decrease(stat, static_cast<std::uint64_t>(stat.current));
}

}  // namespace memlab::allocator
