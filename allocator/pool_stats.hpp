// The pool's counters, shaped like PyTorch's memory_stats so that users' knowledge carries over.
#pragma once

#include <cstdint>

namespace memlab::allocator {

/// One statistic of torch.cuda.memory_stats: .current, .peak, .allocated, .freed.
struct Stat {
    std::int64_t current = 0;
    std::int64_t peak = 0;
    std::int64_t allocated = 0;  ///< sum of all increases
    std::int64_t freed = 0;      ///< sum of all decreases

    bool operator==(const Stat&) const = default;
};

/// The three pools of memory_stats' keys: "all", "small_pool", "large_pool".
struct StatByPool {
    Stat all;
    Stat small_pool;
    Stat large_pool;

    bool operator==(const StatByPool&) const = default;
};

/// Keys and meaning: https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
struct PoolStats {
    StatByPool allocation;
    StatByPool segment;
    StatByPool active;
    StatByPool inactive_split;
    StatByPool allocated_bytes;
    StatByPool reserved_bytes;
    StatByPool active_bytes;
    StatByPool inactive_split_bytes;
    StatByPool requested_bytes;
    std::int64_t num_alloc_retries = 0;
    std::int64_t num_ooms = 0;
    std::int64_t num_sync_all_streams = 0;
    std::int64_t num_device_alloc = 0;
    std::int64_t num_device_free = 0;

    bool operator==(const PoolStats&) const = default;
};

}  // namespace memlab::allocator
