// The pool's statistics, with the names and meaning of PyTorch's memory_stats.
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

    Stat& of(bool small) { return small ? small_pool : large_pool; }
    const Stat& of(bool small) const { return small ? small_pool : large_pool; }
    bool operator==(const StatByPool&) const = default;
};

/// What is not kept for small and large blocks.
struct WholePoolStats {
    Stat oversize_allocations;  ///< of `allocation`, those of max_split_size or more
    Stat oversize_segments;     ///< of `segment`, those of max_split_size or more
    /// The largest request that a free block could serve now. The three measures of fragmentation,
    /// which are independent:
    ///   1 - active_bytes.all.peak / reserved_bytes.all.peak
    ///   1 - largest_free / (reserved_bytes.all.current - active_bytes.all.current)
    ///   1 - requested_bytes.all.current / active_bytes.all.current
    std::int64_t largest_free = 0;
    std::int64_t max_split_size = -1;       ///< PoolOptions::max_split_size; -1: no limit
    std::int64_t num_alloc_retries = 0;     ///< allocations tried again after releasing the cache
    std::int64_t num_ooms = 0;              ///< allocations that failed for lack of memory
    std::int64_t num_sync_all_streams = 0;  ///< host waits for all pending frees
    std::int64_t num_device_alloc = 0;      ///< segments allocated, and mappings
    std::int64_t num_device_free = 0;       ///< segments freed, and unmappings

    bool operator==(const WholePoolStats&) const = default;
};

/// One difference from PyTorch: an alignment gap (PoolOptions::coarse_alignment) is a free block,
/// so it counts in inactive_split. Otherwise keys and meaning are those of
/// https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
struct PoolStats : WholePoolStats {
    StatByPool allocation;            ///< blocks that the application holds
    StatByPool segment;               ///< segments from the backend; ranges that have memory
    StatByPool active;                ///< blocks held, or freed but not yet safe to reuse
    StatByPool inactive_split;        ///< free blocks in segments that are not wholly free
    StatByPool allocated_bytes;       ///< bytes of `allocation`
    StatByPool reserved_bytes;        ///< bytes of `segment`
    StatByPool active_bytes;          ///< bytes of `active`
    StatByPool inactive_split_bytes;  ///< bytes of `inactive_split`
    StatByPool requested_bytes;       ///< what the application asked for, of `active`

    bool operator==(const PoolStats&) const = default;
};

}  // namespace memlab::allocator
