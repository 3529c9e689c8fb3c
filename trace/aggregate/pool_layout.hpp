// The layout of a pool, reconstructed from its events, with PyTorch's memory_stats and the
// fragmentation of the free memory. A free block is a maximal gap between active ones, since the
// pool coalesces immediately.
//
// Invariants, on any input: segments do not overlap; blocks do not overlap, and each is within one
// segment (others are counted, but have no layout). Blocks are kept per segment, since most
// segments have few: O(log blocks in the segment) per event. The largest gap is needed when the
// pool grows; a segment whose largest gap has been used then recomputes it.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trace/address_map.hpp"

namespace memlab::trace {

/// One statistic of torch.cuda.memory_stats.
struct Stat {
    std::uint64_t current = 0;
    std::uint64_t peak = 0;
    std::uint64_t allocated = 0;  ///< sum of all increases
    std::uint64_t freed = 0;      ///< sum of all decreases
    /// The peak since restart(). Not part of the state.
    std::uint64_t recent_peak = 0;

    void increase(std::uint64_t by) {
        current += by;
        allocated += by;
        update_peak();
    }
    void decrease(std::uint64_t by) {
        current -= by;
        freed += by;
    }
    /// increase() or decrease(), without an unpredictable branch.
    void change(std::uint64_t from, std::uint64_t to) {
        const std::uint64_t higher = std::max(from, to);
        current += to - from;
        allocated += higher - from;
        freed += higher - to;
        update_peak();
    }
    void restart() { recent_peak = current; }
    bool operator==(const Stat& other) const {
        return current == other.current && peak == other.peak && allocated == other.allocated &&
               freed == other.freed;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.current, self.peak, self.allocated, self.freed);
    }

  private:
    void update_peak() {
        if (current > peak) [[unlikely]] {
            peak = current;
        }
        recent_peak = std::max(recent_peak, current);
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
    void restart() {
        all.restart();
        small_pool.restart();
        large_pool.restart();
    }
    bool operator==(const StatByPool&) const = default;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.all, self.small_pool, self.large_pool);
    }
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

    /// The recent peaks begin again at what is there now.
    void restart() {
        for (StatByPool* const stat :
             {&allocation, &segment, &active, &inactive_split, &allocated_bytes, &reserved_bytes,
              &active_bytes, &inactive_split_bytes, &requested_bytes}) {
            stat->restart();
        }
        oversize_allocations.restart();
        oversize_segments.restart();
    }
    bool operator==(const MemoryStats&) const = default;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.allocation, self.segment, self.active, self.inactive_split,
                self.allocated_bytes, self.reserved_bytes, self.active_bytes,
                self.inactive_split_bytes, self.requested_bytes, self.oversize_allocations,
                self.oversize_segments, self.max_split_size, self.num_alloc_retries, self.num_ooms,
                self.num_sync_all_streams, self.num_device_alloc, self.num_device_free);
    }
};

/// The segments of one device's pools and the active blocks in them. After a std::bad_alloc the
/// figures are no longer exact; the aggregator then stops.
class PoolLayout {
  public:
    PoolLayout() = default;
    PoolLayout(const PoolLayout&) = delete;  // hints_ points into segments_
    PoolLayout& operator=(const PoolLayout&) = delete;

    /// Segments up to this size belong to the small pool, as in PyTorch.
    static constexpr std::uint64_t small_segment = std::uint64_t{2} << 20;
    /// Blocks up to this size belong to the small pool, if their segment is unknown.
    static constexpr std::uint64_t small_block = std::uint64_t{1} << 20;

    struct AddedBlock {
        bool overlaps = false;  ///< it overlaps active blocks: nothing was added
        bool small = false;     ///< it is in the small pool
    };

    /// Addresses of the active blocks that overlap [address, address + size): those that must end
    /// before the range is reused or freed.
    std::vector<std::uint64_t> blocks_in(std::uint64_t address, std::uint64_t size) const;
    /// Whether an active block with a layout begins there.
    bool has_block(std::uint64_t address) const;
    /// Base addresses of the segments that overlap the range.
    std::vector<std::uint64_t> segments_in(std::uint64_t address, std::uint64_t size) const;

    /// The range must contain no segment and no block. Returns the bytes added (a range beyond the
    /// end of the address space is clipped).
    std::uint64_t add_segment(std::uint64_t address, std::uint64_t size, std::uint32_t context,
                              bool mapped);
    /// The segment must contain no block. Returns the bytes removed: 0 if there is no such segment.
    std::uint64_t remove_segment(std::uint64_t address);
    /// Removes [address, address + size) from mapped segments; it must contain no block. Returns
    /// the bytes removed.
    std::uint64_t unmap(std::uint64_t address, std::uint64_t size);

    /// Adds an active block, unless others overlap it. A block in no segment is counted, without a
    /// layout.
    AddedBlock add_block(std::uint64_t address, std::uint64_t size);
    /// `size` as passed to add_block(), `small` as returned by it.
    void remove_block(std::uint64_t address, std::uint64_t size, bool small);

    struct Range {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    /// The parts of [address, address + size) that are mapped, by address: what unmap() removes.
    std::vector<Range> mapped_in(std::uint64_t address, std::uint64_t size) const;

    /// The size of the segment that begins at `address`; 0 if there is none.
    std::uint64_t segment_size(std::uint64_t address) const;
    /// All segments, by address.
    std::vector<Range> segments() const;
    /// Base addresses of the segments of a context.
    std::vector<std::uint64_t> context_segments(std::uint32_t context) const;

    /// The pool's option of that name: blocks and segments of at least this size count as oversize.
    /// Must be called before any are added.
    void set_max_split_size(std::uint64_t bytes);
    bool oversize(std::uint64_t size) const {
        return stats.max_split_size >= 0 &&
               size >= static_cast<std::uint64_t>(stats.max_split_size);
    }

    /// The free memory inside segments: the largest gap, and the sum of all.
    std::uint64_t largest_gap();
    std::uint64_t gap_bytes() const { return gap_bytes_; }

    MemoryStats stats;

    /// Segments and their blocks in order; the figures of gaps are counted again.
    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.stats);
        if constexpr (Archive::reading) {
            for (std::size_t left = archive.count(); left != 0 && archive.ok(); --left) {
                Segment segment;
                archive(segment);
                if (!archive.ok() || !self.restore(std::move(segment))) {
                    archive.fail();
                }
            }
        } else {
            archive.count(self.segments_.size());
            for (const auto& [base, segment] : self.segments_) {
                archive(segment);
            }
        }
    }

  private:
    using Blocks = AddressMap<std::uint64_t>;  ///< address to size
    struct Segment {
        std::uint64_t base = 0;
        std::uint64_t size = 0;
        std::uint64_t active_bytes = 0;
        std::uint64_t gaps = 0;
        std::uint64_t largest_gap = 0;
        std::uint32_t context = 0;
        bool mapped = false;  ///< from segment_map: grows and shrinks in place
        bool small = false;
        bool recount_gaps = false;  ///< largest_gap is outdated
        Blocks blocks;              ///< the active ones
        std::uint64_t block_count = 0;

        std::uint64_t end() const { return base + size; }

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.base, self.size, self.context, self.mapped, self.small);
            std::uint64_t at = self.base;
            if constexpr (Archive::reading) {
                for (std::size_t left = archive.count(); left != 0 && archive.ok(); --left) {
                    const std::uint64_t address = at + archive.number();
                    const std::uint64_t size = archive.number();
                    if (address < at || size == 0 || address - self.base > self.size ||
                        size > self.size - (address - self.base)) {
                        archive.fail();
                        return;
                    }
                    self.blocks.insert(address, size);
                    ++self.block_count;
                    at = address + size;
                }
            } else {
                const Blocks& blocks = self.blocks;
                archive.count(self.block_count);
                for (auto block = blocks.begin(); block != blocks.end();
                     block = blocks.next(block)) {
                    archive.number(blocks.key_at(block) - at);
                    archive.number(blocks.at(block));
                    at = blocks.key_at(block) + blocks.at(block);
                }
            }
        }
    };
    using Segments = std::map<std::uint64_t, Segment>;

    /// A segment's part of inactive_split: its gaps, if it has active blocks.
    struct Split {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };
    /// The free memory between two blocks.
    struct Gap {
        std::uint64_t start = 0;
        std::uint64_t end = 0;
    };
    static Split split(const Segment& segment);
    void account(bool small, Split before, Split after);

    /// The segment that contains the address, or null.
    Segment* find_segment(std::uint64_t address);
    template <typename SegmentMap>
    static auto first_overlapping(SegmentMap& segments, std::uint64_t address);
    AddedBlock add_without_layout(std::uint64_t address, std::uint64_t size);
    static Gap gap_between(const Segment& segment, Blocks::Position previous,
                           Blocks::Position next);
    void add_mapped(std::uint64_t address, std::uint64_t size, std::uint32_t context);
    static void join(Segment& below, Segment&& above);
    void cut(Segment&& segment, std::uint64_t from, std::uint64_t to);
    void erase(Segments::iterator segment);
    void account_anew(const Segment& segment);
    static void count_gaps(Segment& segment);
    bool restore(Segment&& segment);
    /// Subtracts the segment from gap_bytes_ and inactive_split.
    void unaccount(const Segment& segment);
    template <typename Use>
    static void for_each_gap(const Segment& segment, Use use);

    static constexpr std::size_t hints = 1024;
    static constexpr unsigned hint_shift = 21;  ///< most segments begin at a multiple of 2 MiB

    Segments segments_;
    std::array<Segment*, hints> hints_{};  ///< direct-mapped cache of find_segment(), or null
    std::uint64_t gap_bytes_ = 0;
};

}  // namespace memlab::trace
