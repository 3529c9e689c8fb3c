// PyTorch's memory_stats of a pool that is known only through its events, and how fragmented its
// free memory is. Segments and active blocks are laid out as the pool has them; a free block is a
// maximal gap between active ones, since the pool coalesces at once.
//
// Invariants, on any input: segments do not overlap; blocks do not overlap and lie wholly in one
// segment (others are refused: they have no layout). The blocks are kept segment by segment, since
// most segments have few: O(log blocks in the segment) per event. The largest gap is asked for when
// the pool grows: a segment then counts its gaps anew if its largest has been used.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trace/address_map.hpp"

namespace memlab::trace {

/// One statistic of torch.cuda.memory_stats.
struct Stat {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t allocated = 0;  ///< sum of all increases
    std::uint64_t freed = 0;      ///< sum of all decreases

    void increase(std::uint64_t by) {
        current += by;
        allocated += by;
        note_peak();
    }
    void decrease(std::uint64_t by) {
        current -= by;
        freed += by;
    }
    /// One of the two. Which one is not worth a branch that nobody can foresee.
    void change(std::uint64_t from, std::uint64_t to) {
        const std::uint64_t higher = std::max(from, to);
        current += to - from;
        allocated += higher - from;
        freed += higher - to;
        note_peak();
    }
    bool operator==(const Stat&) const = default;

  private:
    void note_peak() {
        if (current > peak) [[unlikely]] {
            peak = current;
        }
    }
};

struct StatByPool {
    Stat all;
    Stat small_pool;
    Stat large_pool;

    void increase(bool small, std::uint64_t by) {
        all.increase(by);
        (small ? small_pool : large_pool).increase(by);
    }
    void decrease(bool small, std::uint64_t by) {
        all.decrease(by);
        (small ? small_pool : large_pool).decrease(by);
    }
    void change(bool small, std::uint64_t from, std::uint64_t to) {
        all.change(from, to);
        (small ? small_pool : large_pool).change(from, to);
    }
    bool operator==(const StatByPool&) const = default;
};

/// Keys and meaning: https://docs.pytorch.org/docs/stable/generated/torch.cuda.memory_stats.html
struct MemoryStats {
    StatByPool allocation;
    StatByPool segment;
    StatByPool active;
    StatByPool inactive_split;
    StatByPool allocated_bytes;
    StatByPool reserved_bytes;
    StatByPool active_bytes;
    StatByPool inactive_split_bytes;
    StatByPool requested_bytes;
    Stat oversize_allocations;         ///< blocks of max_split_size or more
    Stat oversize_segments;            ///< segments of max_split_size or more
    std::int64_t max_split_size = -1;  ///< -1: all blocks may be split
    std::uint64_t num_alloc_retries = 0;
    std::uint64_t num_ooms = 0;
    std::uint64_t num_sync_all_streams = 0;
    std::uint64_t num_device_alloc = 0;
    std::uint64_t num_device_free = 0;

    bool operator==(const MemoryStats&) const = default;
};

/// The segments of one device's pools and the active blocks in them. Functions that may throw
/// std::bad_alloc leave figures that are no longer exact; the aggregator then stops.
class PoolFigures {
  public:
    PoolFigures() = default;
    PoolFigures(const PoolFigures&) = delete;  // hints_ points into segments_
    PoolFigures& operator=(const PoolFigures&) = delete;

    /// Segments up to this size are of the small pool, as PyTorch's are.
    static constexpr std::uint64_t small_segment = std::uint64_t{2} << 20;
    /// Where a block's segment is unknown, its size tells the pool.
    static constexpr std::uint64_t small_block = std::uint64_t{1} << 20;

    struct AddedBlock {
        bool overlaps = false;  ///< active blocks are in the way: nothing was added
        bool small = false;     ///< it is in the small pool
    };

    /// Addresses of the active blocks that overlap [address, address + size): what must end before
    /// that range is used anew or given back.
    std::vector<std::uint64_t> blocks_in(std::uint64_t address, std::uint64_t size) const;
    /// Base addresses of the segments that overlap the range.
    std::vector<std::uint64_t> segments_in(std::uint64_t address, std::uint64_t size) const;

    /// The range must hold no segment and no block. Returns the bytes that came (a range that
    /// would pass the end of the address space is cut there).
    std::uint64_t add_segment(std::uint64_t address, std::uint64_t size, std::uint32_t context,
                              bool mapped);
    /// The segment must hold no block. Returns the bytes that went: 0 if there is no such segment.
    std::uint64_t remove_segment(std::uint64_t address);
    /// Takes [address, address + size) out of mapped segments; it must hold no block. Returns the
    /// bytes that went.
    std::uint64_t unmap(std::uint64_t address, std::uint64_t size);

    /// A block becomes active, unless others overlap it. A block in no segment is counted, without
    /// a layout.
    AddedBlock add_block(std::uint64_t address, std::uint64_t size);
    /// `size`, `small` as with add_block().
    void remove_block(std::uint64_t address, std::uint64_t size, bool small);

    /// 0 where no segment begins.
    std::uint64_t segment_size(std::uint64_t address) const;
    struct Range {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    /// All segments, by address.
    std::vector<Range> segments() const;
    /// Base addresses of the segments that live in a context.
    std::vector<std::uint64_t> segments_of(std::uint32_t context) const;

    /// The pool's option of that name; blocks and segments from this size on count as oversize.
    /// To be set before there are any.
    void set_max_split_size(std::uint64_t bytes);
    bool oversize(std::uint64_t size) const {
        return stats.max_split_size >= 0 &&
               size >= static_cast<std::uint64_t>(stats.max_split_size);
    }

    /// Of the free memory inside segments: the largest piece, and all of it.
    std::uint64_t largest_gap();
    std::uint64_t gap_bytes() const { return gap_bytes_; }

    MemoryStats stats;

  private:
    using Blocks = AddressMap<std::uint64_t>;  ///< address to size
    struct Segment {
        std::uint64_t base = 0;
        std::uint64_t size = 0;
        std::uint64_t active_bytes = 0;
        std::uint64_t gaps = 0;
        std::uint64_t largest_gap = 0;
        std::uint32_t context = 0;
        bool mapped = false;  ///< came by segment_map: grows and shrinks in place
        bool small = false;
        bool recount_gaps = false;  ///< largest_gap is not known
        Blocks blocks;              ///< the active ones

        std::uint64_t end() const { return base + size; }
    };
    using Segments = std::map<std::uint64_t, Segment>;

    /// What a segment adds to inactive_split: its gaps, if it is split at all.
    struct Split {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };
    /// The free memory between two blocks.
    struct Gap {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
    };
    static Split split_of(const Segment& segment);
    void account(bool small, Split before, Split after);

    /// That holds the address, or null.
    Segment* segment_of(std::uint64_t address);
    template <typename These>
    static auto first_overlapping(These& segments, std::uint64_t address);
    AddedBlock add_without_layout(std::uint64_t address, std::uint64_t size);
    static Gap gap_between(const Segment& segment, Blocks::Place previous, Blocks::Place next);
    void add_mapped(std::uint64_t address, std::uint64_t size, std::uint32_t context);
    void keep(const Segment& of, std::uint64_t from, std::uint64_t to);
    static void copy_blocks(const Segment& from, Segment& to);
    void erase(Segments::iterator segment);
    void recount(Segment& segment);
    /// It is in gap_bytes_ and in inactive_split no longer.
    void leave_out(const Segment& segment);
    template <typename Use>
    static void for_each_gap(const Segment& segment, Use use);

    static constexpr std::size_t hints = 1024;
    static constexpr unsigned hint_shift = 21;  ///< most segments begin at a multiple of 2 MiB

    Segments segments_;
    std::array<Segment*, hints> hints_{};  ///< where that of an address was found last, or null
    std::uint64_t gap_bytes_ = 0;
};

}  // namespace memlab::trace
