// The layout of the segments: blocks indexed by address, free blocks ordered by the sizes they can
// serve. Splits and coalesces; has no fences, statistics or locks.
//
// Guarantees:
//  - the blocks of a segment follow each other without gap or overlap, from its base to its end;
//  - no two free blocks are neighbours, except in the areas without sharing (block.hpp): there each
//    large block is what was mapped at once, and no block reaches into another page than a small
//    block begins in;
//  - an expandable range is a segment whose blocks need not have memory: those without are whole
//    pages in the state `unmapped`, no two of them neighbours. The guarantees for other segments
//    hold for the blocks between two of these;
//  - the memory of a range is in chunks, and only whole chunks become unmapped;
//  - only reserve() and reserve_chunks() allocate host memory, so every other function succeeds: a
//    free cannot fail for lack of it, and an allocation that cannot be recorded fails before
//    anything has changed.
//
// Finding a block by its base is O(1), everything else O(log blocks). Blocks come from slabs with a
// free list, so a steady program calls malloc for none of this; slabs are kept until clear().
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
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
    /// reserve_chunks()) or unmap(), and one take_from(), together. False when there is none; then
    /// nothing has changed.
    bool reserve() noexcept;

    /// The best-fitting free block of a packed area, for take_from(). Null when none fits.
    [[gnu::always_inline]] Block* best_packed_fit(std::uint64_t size, Area area) const noexcept {
        const SubPool& in = sub_pool(area);
        Block* const best = coarse(size, area) ? in.by_capacity.lower_bound(size, 0)
                                               : in.by_size.lower_bound(size, 0);
        return best != nullptr && policy_.may_use(size, best->size) ? best : nullptr;
    }
    /// The same of an area without sharing; in Area::own_chunks only a block of just this size
    /// fits.
    Block* best_unshared_fit(std::uint64_t size, Area area) const noexcept;

    /// Takes a free block that is large enough, split to `size`; it becomes live.
    Block& take_from(Block& block, std::uint64_t size) noexcept;

    /// The number of blocks taken from this area so far: the clock for the age of unused memory.
    std::uint64_t takes(Area area) const noexcept { return sub_pool(area).takes; }

    /// Whether one of these two would accept the block if it were free.
    bool fits(const Block& block, std::uint64_t size, Area area) const noexcept;

    /// Makes a block free and coalesces it with its free neighbours.
    void free_block(Block& block) noexcept;

    /// Whether the range is a possible segment: not null, aligned, not wrapping around, and not
    /// overlapping another.
    bool can_add(Address base, std::uint64_t size) const noexcept;

    /// Adds a segment of one free block. can_add() must hold.
    Block& add_segment(Address base, std::uint64_t size, Area area) noexcept;

    /// How many of a block's bytes a coarsely aligned request could use.
    std::uint64_t capacity(const Block& block) const noexcept;

    // --- expandable ranges ---

    /// Whether the range is possible: whole pages, and otherwise as can_add().
    bool can_add_range(Address base, std::uint64_t size) const noexcept;

    /// Adds an expandable range without memory. can_add_range() must hold.
    void add_range(Address base, std::uint64_t size, Area area) noexcept;

    /// Removes a range that has no memory.
    void remove_range(Address base) noexcept;

    /// Pages to map, so that a free block then fits a request.
    struct Growth {
        Block* hole = nullptr;  ///< null: no range can be made to fit
        Address begin = 0;
        std::uint64_t bytes = 0;
    };
    /// The smallest sufficient number of pages, extending the free neighbours of a hole in place.
    /// Ties go to holes that are not at the end of a range, then to the lowest address. Looks at no
    /// more than max_growth_steps holes, the smallest, before it takes the first that fits alone.
    /// Without sharing: the smallest hole that fits. O(log holes).
    Growth best_growth(std::uint64_t size, Area area) const noexcept;
    static constexpr unsigned max_growth_steps = 128;

    /// The size of the chunks in which a growth is mapped.
    static std::uint64_t chunk_of(const Growth& growth) noexcept {
        return is_packed(growth.hole->segment->area) ? chunk_bytes(growth.bytes)
                                                     : std::min(growth.bytes, max_own_chunk_bytes);
    }

    /// Whether an area without sharing has memory.
    bool has_unshared(Area area) const noexcept { return sub_pool(area).mapped != 0; }

    /// The memory in the areas in which blocks share chunks.
    std::uint64_t packed_bytes() const noexcept {
        return sub_pool(Area::large).mapped + sub_pool(Area::small).mapped;
    }

    /// Allocates the host memory to note where the chunks of a growth begin. False when there is
    /// none; then nothing has changed.
    bool reserve_chunks(const Growth& growth) noexcept;

    /// Marks those pages as mapped; returns the free block that contains them.
    Block& map(const Growth& growth) noexcept;

    /// The whole chunks inside a free block of an expandable range: of a block without sharing all
    /// of it, if that is at least a page.
    struct Pages {
        Block* block = nullptr;
        Address begin = 0;
        std::uint64_t bytes = 0;  ///< 0: none
    };
    /// In a packed area, the whole chunks of the first free block that has some, is not before
    /// (capacity, address), in that order, and for which wanted(block) is true; it must change
    /// nothing but Idle::since_ns.
    template <typename Wanted>
    Pages find_pages(Area area, std::uint64_t capacity, Address address,
                     const Wanted& wanted) const noexcept {
        if (sub_pool(area).whole_pages == 0) {
            return {};
        }
        // A block with a whole chunk has the capacity for a page, so this order contains it.
        Block* const block = sub_pool(area).by_capacity.find_from(
            std::max(capacity, page_bytes), address,
            [&](Block& each) { return each.whole_pages != 0 && wanted(each); });
        return block != nullptr ? whole_chunks(*block) : Pages{};
    }
    /// Pages to give back before a growth that needs so many bytes of others: without sharing the
    /// smallest block that has as many, else the largest; where there is none, those of the largest
    /// free block, except the blocks that `growth` extends.
    Pages pages_for(std::uint64_t bytes, const Growth& growth) const noexcept;

    /// Without sharing, the free blocks that could go back, by the time at which they became free:
    /// the oldest one, and the oldest that no tick has seen. Null: none.
    Block* oldest(Area area) const noexcept { return sub_pool(area).by_age.oldest; }
    Block* oldest_unseen(Area area) const noexcept { return sub_pool(area).by_age.unseen; }
    /// A tick has seen it, the oldest unseen one, at this time.
    void saw(Block& block, std::uint64_t now_ns) noexcept {
        sub_pool(block.segment->area).by_age.saw(block, now_ns);
    }
    void saw(Segment& segment, std::uint64_t now_ns) noexcept {
        sub_pool(segment.area).unused.saw(segment, now_ns);
    }

    /// The bytes that could go back to the device now: unused segments, and the free whole chunks
    /// of ranges.
    std::uint64_t releasable() const noexcept;

    /// What releasable() would be more by if all blocks were free for which `freed(block)` is true:
    /// the share of `block`, one of them. Sums to the whole over all such blocks. O(such and free
    /// neighbours).
    template <typename Freed>
    std::uint64_t releasable_with(Block& block, const Freed& freed) const noexcept;

    /// An upper bound of the bytes that a free block of a range has besides whole chunks. Looks at
    /// no more than max_remainder_steps blocks in each area.
    std::uint64_t largest_remainder() const noexcept;
    static constexpr unsigned max_remainder_steps = 128;

    /// The last chunks of `pages`, as few as hold `bytes`.
    static Pages last_chunks(const Pages& pages, std::uint64_t bytes) noexcept;

    /// Marks whole chunks inside a free block of an expandable range as unmapped.
    void unmap(Block& block, Address begin, std::uint64_t bytes) noexcept;

    /// The wholly free segments, by the time at which they became that, linked by
    /// Segment::unused_links: as oldest() and oldest_unseen().
    Segment* oldest_segment(Area area) const noexcept { return sub_pool(area).unused.oldest; }
    Segment* oldest_unseen_segment(Area area) const noexcept {
        return sub_pool(area).unused.unseen;
    }

    /// What became idle since the last take_idle(): wholly free segments, and free blocks of
    /// ranges with whole chunks. Kept only for pools that trim.
    struct Idle {
        bool unseen = false;                   ///< one that no tick has seen
        std::uint64_t oldest_ns = never_seen;  ///< when a tick first saw the others, the earliest
    };
    const Idle& idle() const noexcept { return idle_; }
    Idle take_idle() noexcept { return std::exchange(idle_, {}); }
    /// What take_idle() returned is to be looked at once more.
    void put_back(const Idle& idle) noexcept {
        idle_.unseen = idle_.unseen || idle.unseen;
        idle_.oldest_ns = std::min(idle_.oldest_ns, idle.oldest_ns);
    }

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
    SplitFree split_free(bool small) const noexcept {
        return sub_pool(packed_area(small)).split_free;
    }

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
    struct BySize {
        static std::uint64_t of(const Block& block) noexcept { return block.size; }
        static TreeLinks& links(Block& block) noexcept { return block.idle.size_links; }
    };
    struct ByCapacity {
        static std::uint64_t of(const Block& block) noexcept { return block.idle.capacity; }
        static TreeLinks& links(Block& block) noexcept { return block.idle.capacity_links; }
    };

    /// Blocks or segments in the order in which they became free.
    template <typename Node>
    struct ByAge {
        Node* oldest = nullptr;
        Node* newest = nullptr;
        Node* unseen = nullptr;  ///< the oldest that no tick has seen; all newer ones are unseen
        std::uint64_t bytes = 0;

        static Links<Block>& links(Block& block) noexcept { return block.idle.age_links; }
        static Links<Segment>& links(Segment& segment) noexcept { return segment.unused_links; }
        static std::uint64_t& since_ns(Block& block) noexcept { return block.idle.since_ns; }
        static std::uint64_t& since_ns(Segment& segment) noexcept { return segment.idle_since_ns; }

        void push(Node& node) noexcept {
            links(node) = {newest, nullptr};
            (newest != nullptr ? links(*newest).right : oldest) = &node;
            newest = &node;
            unseen = unseen != nullptr ? unseen : &node;
            bytes += node.size;
        }
        void remove(Node& node) noexcept {
            const auto [older, newer] = links(node);
            (older != nullptr ? links(*older).right : oldest) = newer;
            (newer != nullptr ? links(*newer).left : newest) = older;
            unseen = unseen == &node ? newer : unseen;
            bytes -= node.size;
        }
        /// A tick has seen the oldest unseen one at this time.
        void saw(Node& node, std::uint64_t now_ns) noexcept {
            since_ns(node) = now_ns;
            unseen = links(node).right;
        }
    };

    /// The free blocks and holes of an area.
    struct SubPool {
        explicit SubPool(unsigned unit_bits) : by_size(unit_bits), by_capacity(unit_bits) {}

        SizedBlocks<BySize> by_size;  ///< for requests below coarse_alignment
        SizedBlocks<ByCapacity> by_capacity;
        OrderedBlocks<BySize> holes;
        std::size_t hole_count = 0;
        ByAge<Block> by_age;    ///< without sharing: those that could go back
        ByAge<Segment> unused;  ///< wholly free segments
        SplitFree split_free;
        std::uint64_t whole_pages = 0;  ///< of free blocks in packed ranges
        std::uint64_t mapped = 0;       ///< bytes of memory in ranges
        std::uint64_t takes = 0;
    };

    /// 215 KiB, so allocated with the first blocks.
    struct SubPools {
        explicit SubPools(unsigned unit_bits)
            : of{SubPool(unit_bits), SubPool(unit_bits), SubPool(unit_bits), SubPool(unit_bits)} {}

        SubPool of[std::size(all_areas)];
    };

    /// The non-const one needs a store that has a block.
    SubPool& sub_pool(Area area) noexcept { return sub_pools_->of[static_cast<unsigned>(area)]; }
    const SubPool& sub_pool(Area area) const noexcept {
        return sub_pools_ != nullptr ? sub_pools_->of[static_cast<unsigned>(area)]
                                     : empty_sub_pool();
    }
    static const SubPool& empty_sub_pool() noexcept;
    /// Without sharing blocks are aligned as plain CUDA's, or more plain CUDA's would fit a page.
    bool coarse(std::uint64_t size, Area area) const noexcept {
        return is_packed(area) && size >= policy_.options().coarse_alignment;
    }
    /// Whether any request for this area can be less than coarsely aligned.
    bool has_fine_requests(Area area) const noexcept {
        return !is_packed(area) || (area == Area::small && policy_.options().coarse_alignment >
                                                               policy_.options().rounding);
    }
    /// Whether a free block is in the order by age.
    static bool goes_back(const Block& block) noexcept {
        return !is_packed(block.segment->area) && block.size >= page_bytes;
    }
    /// Whether a free block and its free neighbour above become one.
    static bool merges_with_below(const Block& upper) noexcept {
        return is_packed(upper.segment->area) ||
               (upper.segment->area == Area::own_page && upper.address % page_bytes != 0);
    }

    Block& insert_segment(Address base, std::uint64_t size, Area area) noexcept;
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
    static Pages whole_chunks(Block& block) noexcept {
        return chunks_between(block, block.address + block.size);
    }
    /// From the beginning of a block to the end of one above it in the same segment.
    static Pages chunks_between(Block& block, Address end) noexcept;
    static std::uint32_t pages_in_whole_chunks(Block& block) noexcept;
    static std::uint64_t releasable_in(Block& block, Address end) noexcept {
        const Segment& segment = *block.segment;
        if (segment.expandable) {
            return chunks_between(block, end).bytes;
        }
        return block.address == segment.base && end == segment.base + segment.size ? segment.size
                                                                                   : 0;
    }
    void unlink_hole(Block& block) noexcept;
    std::string validate_area(Area area) const;
    template <typename Node>
    static bool is_by_age(const ByAge<Node>& order);
    std::string validate_free(const Block& block) const;
    std::string validate_hole(const Block& block) const;
    std::string validate_segment(const Segment& segment, std::size_t* blocks) const;

    const SizePolicy policy_;
    Idle idle_;
    std::map<Address, Segment> segments_;
    Block* spare_ = nullptr;  ///< free list of unused blocks in the slabs, linked by `next`
    std::size_t spare_count_ = 0;
    BlockIndex index_;                     // what changes with each block is at its beginning
    std::unique_ptr<SubPools> sub_pools_;  ///< null before reserve() and from clear() on

    static constexpr std::size_t needed_blocks =
        5;  ///< adding takes 1, mapping and take_from() 2 each
    static constexpr std::size_t slab_blocks = 256;
    struct Slab {
        Block blocks[slab_blocks];
    };
    std::vector<std::unique_ptr<Slab>> slabs_;
    std::map<Address, Segment>::node_type spare_segment_;
};

template <typename Freed>
std::uint64_t BlockStore::releasable_with(Block& block, const Freed& freed) const noexcept {
    const bool mergeable = block.segment->area != Area::own_chunks;
    const auto neighbour = [&](Block* of, Block* Block::*side) -> Block* {
        Block* next = of->*side;
        if (!mergeable || next == nullptr ||
            !merges_with_below(side == &Block::next ? *next : *of)) {
            return nullptr;
        }
        return next->state == BlockState::free || freed(*next) ? next : nullptr;
    };
    std::uint64_t counted = 0;
    Block* first = &block;
    for (Block* below = neighbour(first, &Block::previous); below != nullptr;
         below = neighbour(below, &Block::previous)) {
        if (below->state != BlockState::free) {
            return 0;  // the lowest of the run counts it
        }
        counted += releasable_in(*below, below->address + below->size);
        first = below;
    }
    Block* last = &block;
    for (Block* above = neighbour(last, &Block::next); above != nullptr;
         above = neighbour(above, &Block::next)) {
        counted += above->state == BlockState::free
                       ? releasable_in(*above, above->address + above->size)
                       : 0;
        last = above;
    }
    return releasable_in(*first, last->address + last->size) - counted;
}

}  // namespace memlab::allocator
