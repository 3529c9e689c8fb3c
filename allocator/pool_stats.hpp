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

    Stat& of(bool small) { return small ? small_pool : large_pool; }
    const Stat& of(bool small) const { return small ? small_pool : large_pool; }
    bool operator==(const StatByPool&) const = default;
};

/// What differs from PyTorch: an alignment gap (PoolOptions::coarse_alignment) is a free block and
/// so counts in inactive_split. Otherwise keys and meaning are those of
/// https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
struct PoolStats {
    StatByPool allocation;            ///< blocks that the application holds
    StatByPool segment;               ///< got from the backend; ranges that have memory
    StatByPool active;                ///< blocks held, or freed but not yet safe to reuse
    StatByPool inactive_split;        ///< free blocks in segments that are not wholly free
    StatByPool allocated_bytes;       ///< bytes of `allocation`
    StatByPool reserved_bytes;        ///< bytes of `segment`
    StatByPool active_bytes;          ///< bytes of `active`
    StatByPool inactive_split_bytes;  ///< bytes of `inactive_split`
    StatByPool requested_bytes;       ///< what the application asked for, of `active`
    Stat oversize_allocations;        ///< of `allocation`, those of max_split_size or more
    Stat oversize_segments;           ///< of `segment`, those of max_split_size or more
    /// The most that one request could have of a free block, now. With it the three figures of
    /// fragmentation are, each of its own:
    ///   1 - active_bytes.all.peak / reserved_bytes.all.peak
    ///   1 - largest_free / (reserved_bytes.all.current - active_bytes.all.current)
    ///   1 - requested_bytes.all.current / active_bytes.all.current
    std::int64_t largest_free = 0;
    std::int64_t max_split_size = -1;       ///< PoolOptions::max_split_size; -1: no limit
    std::int64_t num_alloc_retries = 0;     ///< allocations tried again after releasing the cache
    std::int64_t num_ooms = 0;              ///< allocations that failed for lack of memory
    std::int64_t num_sync_all_streams = 0;  ///< times the host made sure of all pending frees
    std::int64_t num_device_alloc = 0;      ///< segments got from the backend, and mappings
    std::int64_t num_device_free = 0;       ///< segments given back to it, and unmappings

    bool operator==(const PoolStats&) const = default;
};

}  // namespace memlab::allocator
