// Where every byte of every segment is: blocks by address, free blocks by what they can serve.
// Splits and merges; knows neither fences, statistics nor locks.
//
// Guarantees:
//  - the blocks of a segment follow each other without gap or overlap, from its base to its end;
//  - no two free blocks are neighbours;
//  - an expandable range is a segment whose blocks need not have memory: those without are whole
//    pages in the state `unmapped`, no two of them neighbours. What is true of the blocks of other
//    segments is true of those between two of these;
//  - only reserve() allocates host memory, so every other function succeeds: a free can never fail
//    for want of it, and an allocation that cannot be recorded is refused before anything changed.
//
// A block by its base is O(1), everything else O(log blocks). Blocks come from slabs and go back to
// them, so a steady program calls malloc for none of this; slabs are kept until clear().
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "allocator/backend.hpp"
#include "allocator/block.hpp"
#include "allocator/block_index.hpp"
#include "allocator/ordered_blocks.hpp"
#include "allocator/size_policy.hpp"

namespace memlab::allocator {

/// Segments that the store has forgotten and the backend does not have back yet. Joining costs no
/// memory.
using LeavingSegments = std::multimap<Address, Segment>;

/// Thread-safety: none; the pool's lock serializes.
class BlockStore {
  public:
    explicit BlockStore(const SizePolicy& policy);
    BlockStore(const BlockStore&) = delete;
    BlockStore& operator=(const BlockStore&) = delete;

    /// Gets the host memory that one of add_segment() and add_range(), one of map() and unmap(),
    /// and one take() may need together. False when there is none; nothing has changed then.
    bool reserve() noexcept;

    /// The best fitting free block, cut to `size`, now live; null when none fits.
    Block* take(std::uint64_t size, bool small) noexcept;

    /// True when take() would give a block.
    bool has_fit(std::uint64_t size, bool small) const noexcept;

    /// True when take() would give a whole free block, with nothing of it to spare.
    bool has_exactly(std::uint64_t size, bool small) const noexcept;

    /// A free block that is large enough, cut to `size`, now live.
    Block& take_from(Block& block, std::uint64_t size) noexcept;

    /// How many blocks of this half were taken so far: what the age of unused memory is counted in.
    std::uint64_t takes(bool small) const noexcept { return half(small).takes; }

    /// True when take() could be satisfied by this block, were it free.
    bool fits(const Block& block, std::uint64_t size, bool small) const noexcept;

    /// Makes a block free and merges it with its free neighbours.
    void put_back(Block& block) noexcept;

    /// True when the range is a possible segment: not null, aligned, not wrapping around, and in no
    /// one's way.
    bool can_add(Address base, std::uint64_t size) const noexcept;

    /// A new segment, one free block. can_add() must hold.
    Block& add_segment(Address base, std::uint64_t size, bool small) noexcept;

    /// How many of a block's bytes a request could use that must be coarsely aligned.
    std::uint64_t capacity(const Block& block) const noexcept;

    // --- expandable ranges ---

    /// Whether the range is possible: whole pages, and otherwise as can_add().
    bool can_add_range(Address base, std::uint64_t size) const noexcept;

    /// A new expandable range without memory. can_add_range() must hold.
    void add_range(Address base, std::uint64_t size, bool small) noexcept;

    /// Forgets a range that has no memory.
    void remove_range(Address base) noexcept;

    /// Pages to map, so that a free block then fits a request.
    struct Growth {
        Block* hole = nullptr;  ///< null: no range can be made to fit
        Address begin = 0;
        std::uint64_t bytes = 0;
    };
    /// The fewest pages that are enough, which extend free neighbours of a hole in place; of equals
    /// those that leave the end of the range alone, then the lowest. O(holes).
    Growth best_growth(std::uint64_t size, bool small) const noexcept;

    /// Those pages have memory now; returns the free block that they are in.
    Block& map(const Growth& growth) noexcept;

    /// The whole pages inside a free block of an expandable range.
    struct Pages {
        Block* block = nullptr;
        Address begin = 0;
        std::uint64_t bytes = 0;  ///< 0: none
    };
    /// The free block with whole pages that is next by (capacity, address) after `after`; unmapping
    /// the pages found so far is allowed in between: pass copies.
    Pages free_pages(bool small, std::uint64_t after_capacity, Address after) const noexcept;
    /// Those of the largest free block of all, but for the ones that `growth` extends.
    Pages largest_free_pages(const Growth& growth) const noexcept;

    /// Pages inside a free block of an expandable range have no memory any more.
    void unmap(Block& block, Address begin, std::uint64_t bytes) noexcept;

    /// A segment that is wholly free, the next by (size, address) after `after`; null at the end.
    /// Removing the segment found so far is allowed in between: pass copies.
    Segment* unused_segment(bool small, std::uint64_t after_size,
                            Address after_base) const noexcept;

    /// Forgets a segment that is wholly free; it goes to `leaving`.
    void remove_segment(Address base, LeavingSegments& leaving) noexcept;

    /// Forgets everything and gives its memory back.
    void clear() noexcept;

    /// The block that holds `address`, in any state; null when no segment does.
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
    SplitFree split_free(bool small) const noexcept { return half(small).split_free; }

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

    /// Checks every guarantee above; empty when all hold, else what does not and where.
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
    struct Half {
        explicit Half(unsigned unit_bits) : by_size(unit_bits), by_capacity(unit_bits) {}

        SizedBlocks<BySize> by_size;  ///< for requests below coarse_alignment
        SizedBlocks<ByCapacity> by_capacity;
        OrderedBlocks<BySize> holes;
        std::size_t hole_count = 0;
        SplitFree split_free;
        std::uint64_t takes = 0;
    };

    /// 107 KiB: with the memory of the blocks, not of the store.
    struct Halves {
        explicit Halves(unsigned unit_bits) : small(unit_bits), large(unit_bits) {}

        Half small;
        Half large;
    };

    /// Of a store that has a block.
    Half& half(bool small) noexcept { return small ? halves_->small : halves_->large; }
    const Half& half(bool small) const noexcept { return *halves_or_nothing_[small ? 1 : 0]; }
    static const Half& nothing() noexcept;
    bool coarse(std::uint64_t size) const noexcept {
        return size >= policy_.options().coarse_alignment;
    }
    /// Whether any request for this half can be less than coarsely aligned.
    bool has_fine_requests(bool small) const noexcept {
        return small && policy_.options().coarse_alignment > policy_.options().rounding;
    }

    Block& insert_segment(Address base, std::uint64_t size, bool small) noexcept;
    Block& new_block() noexcept;
    void recycle(Block& block) noexcept;
    Block& cut(Block& block, std::uint64_t at) noexcept;
    void absorb_next(Block& block) noexcept;
    void link(Block& block) noexcept;
    void unlink(Block& block) noexcept;
    Block* isolate(Block& block, Address begin, std::uint64_t bytes) noexcept;
    void join_free(Block& block) noexcept;
    void link_hole(Block& block) noexcept;
    static bool counts_as_split(const Block& block) noexcept {
        return !block.segment->expandable && block.segment->blocks > 1;
    }
    static Pages pages_of(Block& block) noexcept;
    void unlink_hole(Block& block) noexcept;
    std::string validate_free(const Block& block) const;
    std::string validate_hole(const Block& block) const;
    std::string validate_segment(const Segment& segment, std::size_t* blocks) const;

    const SizePolicy policy_;
    std::map<Address, Segment> segments_;
    BlockIndex index_;
    std::unique_ptr<Halves> halves_;    ///< null before reserve() and from clear() on
    const Half* halves_or_nothing_[2];  ///< large, small

    static constexpr std::size_t needed_blocks = 5;  ///< adding takes 1, mapping and take() 2 each
    static constexpr std::size_t slab_blocks = 256;
    struct Slab {
        Block blocks[slab_blocks];
    };
    std::vector<std::unique_ptr<Slab>> slabs_;
    Block* spare_ = nullptr;  ///< blocks of slabs that are not in use, through `next`
    std::size_t spare_count_ = 0;
    std::map<Address, Segment>::node_type spare_segment_;
};

}  // namespace memlab::allocator
