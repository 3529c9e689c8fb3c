// The updates of the pool's statistics. They keep two invariants: peak >= current, and
// current == allocated - freed.
#pragma once

#include <cstdint>

#include "allocator/pool_stats.hpp"

namespace memlab::allocator {

inline void increase(Stat& stat, std::uint64_t amount) {
    const auto by = static_cast<std::int64_t>(amount);
    stat.current += by;
    stat.allocated += by;
    if (stat.current > stat.peak) {
        stat.peak = stat.current;
    }
}

inline void decrease(Stat& stat, std::uint64_t amount) {
    const auto by = static_cast<std::int64_t>(amount);
    stat.current -= by;
    stat.freed += by;
}

inline void increase(StatByPool& stat, bool small, std::uint64_t amount) {
    increase(stat.all, amount);
    increase(stat.of(small), amount);
}

inline void decrease(StatByPool& stat, bool small, std::uint64_t amount) {
    decrease(stat.all, amount);
    decrease(stat.of(small), amount);
}

/// Sets one pool's current to `value` by one net change, as PyTorch counts inactive_split.
inline void set_current(StatByPool& stat, bool small, std::uint64_t value) {
    const std::int64_t by = static_cast<std::int64_t>(value) - stat.of(small).current;
    if (by > 0) {
        increase(stat, small, static_cast<std::uint64_t>(by));
    } else if (by < 0) {
        decrease(stat, small, static_cast<std::uint64_t>(-by));
    }
}

/// Counts everything current as freed.
inline void clear_current(Stat& stat) {
    decrease(stat, static_cast<std::uint64_t>(stat.current));
}

inline void clear_current(StatByPool& stat) {
    for (Stat* each : {&stat.all, &stat.small_pool, &stat.large_pool}) {
        clear_current(*each);
    }
}

}  // namespace memlab::allocator
