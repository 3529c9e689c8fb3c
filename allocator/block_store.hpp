// The layout of the segments: blocks indexed by address, free blocks ordered by the sizes they can
// serve. Splits and coalesces; has no fences, statistics or locks.
//
// Guarantees:
//  - the blocks of a segment follow each other without gap or overlap, from its base to its end;
//  - no two free blocks are neighbours;
//  - an expandable range is a segment whose blocks need not have memory: those without are whole
//    pages in the state `unmapped`, no two of them neighbours. The guarantees for other segments
//    hold for the blocks between two of these;
//  - the memory of a range is in chunks (chunk_bytes), and only whole chunks become unmapped;
//  - only reserve() and reserve_chunks() allocate host memory, so every other function succeeds: a
//    free cannot fail for lack of it, and an allocation that cannot be recorded fails before
//    anything has changed.
//
// Finding a block by its base is O(1), everything else O(log blocks). Blocks come from slabs with a
// free list, so a steady program calls malloc for none of this; slabs are kept until clear().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "allocator/backend.hpp"
#include "allocator/block.hpp"
#include "allocator/block_index.hpp"
#include "allocator/ordered_blocks.hpp"
#include "allocator/size_policy.hpp"

namespace memlab::allocator {

/// Segments removed from the store and not yet freed by the backend. Insertion moves the map node,
/// so it allocates nothing.
using ReleasedSegments = std::multimap<Address, Segment>;

/// Thread-safety: none; the pool's lock serializes.
class BlockStore {
  public:
    explicit BlockStore(const SizePolicy& policy);
    BlockStore(const BlockStore&) = delete;
    BlockStore& operator=(const BlockStore&) = delete;

    /// Allocates the host memory for one add_segment() or add_range(), one map() (with
    /// reserve_chunks()) or unmap(), and one take(), together. False when there is none; then
    /// nothing has changed.
    bool reserve() noexcept;

    /// Takes the best-fitting free block, split to `size`; it becomes live. Null when none fits.
    Block* take(std::uint64_t size, bool small) noexcept;

    /// Whether take() would succeed.
    bool has_fit(std::uint64_t size, bool small) const noexcept;

    /// Whether take() would use a whole free block, without a rest.
    bool has_exact_fit(std::uint64_t size, bool small) const noexcept;

    /// Takes a free block that is large enough, split to `size`; it becomes live.
    Block& take_from(Block& block, std::uint64_t size) noexcept;

    /// The number of blocks taken from this sub-pool so far: the clock for the age of unused
    /// memory.
    std::uint64_t takes(bool small) const noexcept { return sub_pool(small).takes; }

    /// Whether this block would satisfy take() if it were free.
    bool fits(const Block& block, std::uint64_t size, bool small) const noexcept;

    /// Makes a block free and coalesces it with its free neighbours.
    void free_block(Block& block) noexcept;

    /// Whether the range is a possible segment: not null, aligned, not wrapping around, and not
    /// overlapping another.
    bool can_add(Address base, std::uint64_t size) const noexcept;

    /// Adds a segment of one free block. can_add() must hold.
    Block& add_segment(Address base, std::uint64_t size, bool small) noexcept;

    /// How many of a block's bytes a coarsely aligned request could use.
    std::uint64_t capacity(const Block& block) const noexcept;

    // --- expandable ranges ---

    /// Whether the range is possible: whole pages, and otherwise as can_add().
    bool can_add_range(Address base, std::uint64_t size) const noexcept;

    /// Adds an expandable range without memory. can_add_range() must hold.
    void add_range(Address base, std::uint64_t size, bool small) noexcept;

    /// Removes a range that has no memory.
    void remove_range(Address base) noexcept;

    /// Pages to map, so that a free block then fits a request.
    struct Growth {
        Block* hole = nullptr;  ///< null: no range can be made to fit
        Address begin = 0;
        std::uint64_t bytes = 0;
    };
    /// The smallest sufficient number of pages, extending the free neighbours of a hole in place.
    /// Ties go to holes that are not at the end of a range, then to the lowest address. O(holes).
    Growth best_growth(std::uint64_t size, bool small) const noexcept;

    /// Allocates the host memory to note where the chunks of a growth begin. False when there is
    /// none; then nothing has changed.
    bool reserve_chunks(const Growth& growth) noexcept;

    /// Marks those pages as mapped; returns the free block that contains them.
    Block& map(const Growth& growth) noexcept;

    /// The whole chunks inside a free block of an expandable range.
    struct Pages {
        Block* block = nullptr;
        Address begin = 0;
        std::uint64_t bytes = 0;  ///< 0: none
    };
    /// The next free block with whole chunks after (after_capacity, after), by (capacity, address).
    /// The pages found so far may be unmapped between calls: pass copies of the key.
    Pages free_pages(bool small, std::uint64_t after_capacity, Address after) const noexcept;
    /// Those of the largest free block that has some, except the blocks that `growth` extends.
    Pages largest_free_pages(const Growth& growth) const noexcept;

    /// An upper bound of the bytes that a free block of a range has besides whole chunks. O(free
    /// blocks).
    std::uint64_t largest_remainder() const noexcept;

    /// The last chunks of `pages`, as few as hold `bytes`.
    static Pages last_chunks(const Pages& pages, std::uint64_t bytes) noexcept;

    /// Marks whole chunks inside a free block of an expandable range as unmapped.
    void unmap(Block& block, Address begin, std::uint64_t bytes) noexcept;

    /// The next wholly free segment after (after_size, after_base), by (size, address); null at the
    /// end. The segment found may be removed between calls: pass copies of the key.
    Segment* unused_segment(bool small, std::uint64_t after_size,
                            Address after_base) const noexcept;

    /// What became idle since the last take_idle(): wholly free segments, and free blocks of
    /// ranges with whole chunks. Kept only for pools that trim.
    struct Idle {
        bool unseen = false;                   ///< one that no tick has seen
        std::uint64_t oldest_ns = never_seen;  ///< when a tick first saw the others, the earliest
    };
    const Idle& idle() const noexcept { return idle_; }
    Idle take_idle() noexcept { return std::exchange(idle_, {}); }

    /// Moves a wholly free segment to `released`.
    void remove_segment(Address base, ReleasedSegments& released) noexcept;

    /// Removes everything and frees the host memory.
    void clear() noexcept;

    /// The block that contains `address`, in any state; null when no segment does.
    Block* find(Address address) noexcept;
    const Block* find(Address address) const noexcept;

    /// The largest request that could be served from a free block.
    std::uint64_t largest_free() const noexcept;

    struct SplitFree {
        std::uint64_t blocks = 0;
        std::uint64_t bytes = 0;

        bool operator==(const SplitFree&) const = default;
    };
    /// The free blocks of segments that are not wholly free.
    SplitFree split_free(bool small) const noexcept { return sub_pool(small).split_free; }

    const std::map<Address, Segment>& segments() const { return segments_; }

    /// Calls visit(const Block&) for each block, by address. O(blocks).
    template <typename Visit>
    void for_each_block(Visit visit) const {
        for (const auto& entry : segments_) {
            for (const Block* block = entry.second.first; block != nullptr; block = block->next) {
                visit(*block);
            }
        }
    }

    /// Checks every guarantee above. Empty when all hold, else one that does not, and where.
    std::string validate() const;

  private:
    Block* best_fit(std::uint64_t size, bool small) const noexcept;

    struct BySize {
        static std::uint64_t of(const Block& block) noexcept { return block.size; }
        static TreeLinks& links(Block& block) noexcept { return block.idle.size_links; }
    };
    struct ByCapacity {
        static std::uint64_t of(const Block& block) noexcept { return block.idle.capacity; }
        static TreeLinks& links(Block& block) noexcept { return block.idle.capacity_links; }
    };

    /// PyTorch's small pool and large pool.
    struct SubPool {
        explicit SubPool(unsigned unit_bits) : by_size(unit_bits), by_capacity(unit_bits) {}

        SizedBlocks<BySize> by_size;  ///< for requests below coarse_alignment
        SizedBlocks<ByCapacity> by_capacity;
        OrderedBlocks<BySize> holes;
        std::size_t hole_count = 0;
        SplitFree split_free;
        std::uint64_t takes = 0;
    };

    /// 107 KiB, so allocated with the first blocks.
    struct SubPools {
        explicit SubPools(unsigned unit_bits) : small(unit_bits), large(unit_bits) {}

        SubPool small;
        SubPool large;
    };

    /// The non-const one needs a store that has a block.
    SubPool& sub_pool(bool small) noexcept { return small ? sub_pools_->small : sub_pools_->large; }
    const SubPool& sub_pool(bool small) const noexcept {
        return *sub_pools_or_empty_[small ? 1 : 0];
    }
    static const SubPool& empty_sub_pool() noexcept;
    bool coarse(std::uint64_t size) const noexcept {
        return size >= policy_.options().coarse_alignment;
    }
    /// Whether any request for this sub-pool can be less than coarsely aligned.
    bool has_fine_requests(bool small) const noexcept {
        return small && policy_.options().coarse_alignment > policy_.options().rounding;
    }

    Block& insert_segment(Address base, std::uint64_t size, bool small) noexcept;
    Block& new_block() noexcept;
    void recycle(Block& block) noexcept;
    Block& split(Block& block, std::uint64_t at) noexcept;
    void merge_next(Block& block) noexcept;
    void link(Block& block) noexcept;
    void note_idle(Block& block) noexcept;
    void unlink(Block& block) noexcept;
    Block* isolate(Block& block, Address begin, std::uint64_t bytes) noexcept;
    void coalesce(Block& block) noexcept;
    void link_hole(Block& block) noexcept;
    static bool counts_as_split(const Block& block) noexcept {
        return !block.segment->expandable && block.segment->blocks > 1;
    }
    static Pages whole_chunks(Block& block) noexcept;
    void unlink_hole(Block& block) noexcept;
    std::string validate_free(const Block& block) const;
    std::string validate_hole(const Block& block) const;
    std::string validate_segment(const Segment& segment, std::size_t* blocks) const;

    const SizePolicy policy_;
    Idle idle_;
    std::map<Address, Segment> segments_;
    Block* spare_ = nullptr;  ///< free list of unused blocks in the slabs, linked by `next`
    std::size_t spare_count_ = 0;
    BlockIndex index_;                      // what changes with each block is at its beginning
    std::unique_ptr<SubPools> sub_pools_;   ///< null before reserve() and from clear() on
    const SubPool* sub_pools_or_empty_[2];  ///< large, small

    static constexpr std::size_t needed_blocks = 5;  ///< adding takes 1, mapping and take() 2 each
    static constexpr std::size_t slab_blocks = 256;
    struct Slab {
        Block blocks[slab_blocks];
    };
    std::vector<std::unique_ptr<Slab>> slabs_;
    std::map<Address, Segment>::node_type spare_segment_;
};

}  // namespace memlab::allocator
