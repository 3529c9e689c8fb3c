// How the pool's statistics change: every current, peak and sum moves through these four functions,
// so that peak is never below current and current is always allocated - freed.
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

/// Brings one pool's current to `value`: one net change, as PyTorch counts inactive_split.
inline void bring_to(StatByPool& stat, bool small, std::uint64_t value) {
    const std::int64_t by = static_cast<std::int64_t>(value) - stat.of(small).current;
    if (by > 0) {
        increase(stat, small, static_cast<std::uint64_t>(by));
    } else if (by < 0) {
        decrease(stat, small, static_cast<std::uint64_t>(-by));
    }
}

/// Everything current counts as freed.
inline void drop_all(Stat& stat) {
    decrease(stat, static_cast<std::uint64_t>(stat.current));
}

inline void drop_all(StatByPool& stat) {
    for (Stat* each : {&stat.all, &stat.small_pool, &stat.large_pool}) {
        drop_all(*each);
    }
}

}  // namespace memlab::allocator
