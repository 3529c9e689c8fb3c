#include "allocator/block_store.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace memlab::allocator {

namespace {

std::string hex(Address address) {
    constexpr char digits[] = "0123456789abcdef";
    std::string text;
    do {
        text.insert(text.begin(), digits[address % 16]);
        address /= 16;
    } while (address != 0);
    return "0x" + text;
}

}  // namespace

BlockStore::BlockStore(const SizePolicy& policy)
    : policy_(policy), sub_pools_or_empty_{&empty_sub_pool(), &empty_sub_pool()} {}

/// Stands in until there are sub-pools: every search in it finds nothing.
const BlockStore::SubPool& BlockStore::empty_sub_pool() noexcept {
    static const SubPool empty(9);
    return empty;
}

[[gnu::hot]] bool BlockStore::reserve() noexcept {
    if (spare_count_ >= needed_blocks && !spare_segment_.empty() && index_.ready(needed_blocks)) {
        return true;
    }
    try {
        if (sub_pools_ == nullptr) {
            sub_pools_ = std::make_unique<SubPools>(
                static_cast<unsigned>(std::countr_zero(policy_.options().rounding)));
            sub_pools_or_empty_[0] = &sub_pools_->large;
            sub_pools_or_empty_[1] = &sub_pools_->small;
        }
        if (spare_count_ < needed_blocks) {
            slabs_.push_back(std::unique_ptr<Slab>(new Slab));
            // The lowest address ends up first in the free list, for locality.
            for (std::size_t i = slab_blocks; i != 0; --i) {
                recycle(slabs_.back()->blocks[i - 1]);
            }
        }
        if (spare_segment_.empty()) {
            std::map<Address, Segment> made;
            made.try_emplace(0);
            spare_segment_ = made.extract(made.begin());
        }
        index_.reserve(needed_blocks);
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

std::uint64_t BlockStore::capacity(const Block& block) const noexcept {
    return policy_.aligned_capacity(block.address - block.segment->base, block.size);
}

[[gnu::hot]] bool BlockStore::fits(const Block& block, std::uint64_t size,
                                   bool small) const noexcept {
    return block.segment->small == small && (coarse(size) ? capacity(block) : block.size) >= size &&
           policy_.may_use(size, block.size);
}

[[gnu::hot]] Block* BlockStore::best_fit(std::uint64_t size, bool small) const noexcept {
    Block* best = coarse(size) ? sub_pool(small).by_capacity.lower_bound(size, 0)
                               : sub_pool(small).by_size.lower_bound(size, 0);
    return best != nullptr && policy_.may_use(size, best->size) ? best : nullptr;
}

[[gnu::hot]] Block* BlockStore::take(std::uint64_t size, bool small) noexcept {
    Block* best = best_fit(size, small);
    return best != nullptr ? &take_from(*best, size) : nullptr;
}

bool BlockStore::has_fit(std::uint64_t size, bool small) const noexcept {
    return best_fit(size, small) != nullptr;
}

[[gnu::hot]] bool BlockStore::has_exact_fit(std::uint64_t size, bool small) const noexcept {
    const Block* best = best_fit(size, small);
    return best != nullptr && best->size == size;
}

[[gnu::hot]] Block& BlockStore::take_from(Block& from, std::uint64_t size) noexcept {
    const bool small = from.segment->small;
    Block* block = &from;
    unlink(*block);
    ++sub_pool(small).takes;

    const std::uint64_t lead = coarse(size) ? block->size - capacity(*block) : 0;
    if (lead != 0) {
        Block& rest = split(*block, lead);
        link(*block);
        block = &rest;
    }
    const std::uint64_t tail = block->size - size;
    if (tail != 0 && policy_.splits_tail(size, tail, small, block->next == nullptr)) {
        link(split(*block, size));
    }
    block->state = BlockState::live;
    block->use = {};
    return *block;
}

[[gnu::hot]] void BlockStore::free_block(Block& block) noexcept {
    block.idle.since_ns = never_seen;
    coalesce(block);
}

/// Makes an unlinked block free and merges it with its free neighbours.
[[gnu::hot]] void BlockStore::coalesce(Block& block) noexcept {
    Block* whole = &block;
    whole->state = BlockState::free;
    if (Block* below = block.previous; below != nullptr && below->state == BlockState::free) {
        unlink(*below);
        merge_next(*below);
        whole = below;
    }
    if (Block* above = whole->next; above != nullptr && above->state == BlockState::free) {
        unlink(*above);
        merge_next(*whole);
    }
    link(*whole);
}

bool BlockStore::can_add(Address base, std::uint64_t size) const noexcept {
    if (base == 0 || base % policy_.options().rounding != 0 ||
        base > std::numeric_limits<Address>::max() - size) {
        return false;
    }
    const auto above = segments_.lower_bound(base);
    if (above != segments_.end() && above->first < base + size) {
        return false;
    }
    if (above == segments_.begin()) {
        return true;
    }
    const Segment& below = std::prev(above)->second;
    return below.base + below.size <= base;
}

Block& BlockStore::add_segment(Address base, std::uint64_t size, bool small) noexcept {
    Block& block = insert_segment(base, size, small);
    block.segment->mapped = size;
    link(block);
    return block;
}

/// Adds a segment of one unlinked block.
Block& BlockStore::insert_segment(Address base, std::uint64_t size, bool small) noexcept {
    spare_segment_.key() = base;
    Segment& segment = segments_.insert(std::move(spare_segment_)).position->second;
    Block& block = new_block();
    segment = Segment{};
    segment.base = base;
    segment.size = size;
    segment.first = &block;
    segment.small = small;
    segment.blocks = 1;
    block.address = base;
    block.size = size;
    block.segment = &segment;
    index_.insert(block);
    return block;
}

Segment* BlockStore::unused_segment(bool small, std::uint64_t after_size,
                                    Address after_base) const noexcept {
    const SizedBlocks<ByCapacity>& order = sub_pool(small).by_capacity;
    // No segment is smaller than a page, so the smaller free blocks are skipped.
    Block* block = after_size < page_bytes ? order.lower_bound(page_bytes, 0)
                                           : order.upper_bound(after_size, after_base);
    for (; block != nullptr; block = order.upper_bound(block->idle.capacity, block->address)) {
        if (block->segment->blocks == 1 && !block->segment->expandable) {
            return block->segment;
        }
    }
    return nullptr;
}

void BlockStore::remove_segment(Address base, ReleasedSegments& released) noexcept {
    auto segment = segments_.extract(base);
    Block& block = *segment.mapped().first;
    unlink(block);
    index_.remove(block);
    recycle(block);
    released.insert(std::move(segment));
}

void BlockStore::clear() noexcept {
    sub_pools_or_empty_[0] = sub_pools_or_empty_[1] = &empty_sub_pool();
    sub_pools_.reset();
    index_.clear();
    segments_.clear();
    spare_segment_ = {};
    slabs_ = std::vector<std::unique_ptr<Slab>>();
    spare_ = nullptr;
    spare_count_ = 0;
}

// --- expandable ranges ------------------------------------------------------------------------

bool BlockStore::can_add_range(Address base, std::uint64_t size) const noexcept {
    return base % page_bytes == 0 && size != 0 && size % page_bytes == 0 && can_add(base, size);
}

void BlockStore::add_range(Address base, std::uint64_t size, bool small) noexcept {
    Block& hole = insert_segment(base, size, small);
    hole.segment->expandable = true;
    hole.state = BlockState::unmapped;
    link_hole(hole);
}

void BlockStore::remove_range(Address base) noexcept {
    Block& hole = *segments_.find(base)->second.first;
    unlink_hole(hole);
    index_.remove(hole);
    recycle(hole);
    segments_.erase(base);
}

BlockStore::Growth BlockStore::best_growth(std::uint64_t size, bool small) const noexcept {
    Growth best;
    const auto offer = [&best](Block& hole, Address begin, std::uint64_t bytes) {
        const auto rank = [](const Block& of) { return std::pair{of.next == nullptr, of.address}; };
        if (best.hole == nullptr || bytes < best.bytes ||
            (bytes == best.bytes && rank(hole) < rank(*best.hole))) {
            best = {&hole, begin, bytes};
        }
    };
    const auto pages = [](std::uint64_t bytes) {
        return (bytes + page_bytes - 1) / page_bytes * page_bytes;
    };
    const std::uint64_t unit = policy_.alignment_of(size);
    const OrderedBlocks<BySize>& holes = sub_pool(small).holes;
    for (Block* each = holes.first(); each != nullptr;
         each = holes.upper_bound(each->size, each->address)) {
        Block& hole = *each;
        const Address end = hole.address + hole.size;
        const auto is_free = [](const Block* block) {
            return block != nullptr && block->state == BlockState::free;
        };
        // Grow upwards from the free block below, or from the start of the hole ...
        const Address from = is_free(hole.previous) ? hole.previous->address : hole.address;
        const std::uint64_t beyond = (from - hole.segment->base) % unit;
        const Address begin = beyond == 0 ? from : from + (unit - beyond);
        const std::uint64_t above = is_free(hole.next) ? hole.next->size : 0;
        if (size <= end - begin) {
            offer(hole, hole.address, pages(begin + size - hole.address));
        } else if (size <= end + above - begin) {
            offer(hole, hole.address, hole.size);
        }
        // ... or downwards from the free block above; a page is aligned enough for any block.
        if (above != 0 && above < size && pages(size - above) <= hole.size) {
            const std::uint64_t bytes = pages(size - above);
            offer(hole, end - bytes, bytes);
        }
    }
    return best;
}

/// Splits a range of bytes off an unlinked block, as a block of its own in the same state; the rest
/// on either side stays unlinked.
Block* BlockStore::isolate(Block& block, Address begin, std::uint64_t bytes) noexcept {
    Block* middle = &block;
    if (begin != block.address) {
        middle = &split(block, begin - block.address);
        middle->state = block.state;
    }
    if (bytes != middle->size) {
        split(*middle, bytes).state = block.state;
    }
    return middle;
}

Block& BlockStore::map(const Growth& growth) noexcept {
    Block& hole = *growth.hole;
    unlink_hole(hole);
    Block* mapped = isolate(hole, growth.begin, growth.bytes);
    for (Block* side : {mapped->previous, mapped->next}) {
        if (side != nullptr && side->state == BlockState::unmapped) {
            link_hole(*side);
        }
    }
    mapped->segment->mapped += growth.bytes;
    mapped->idle.since_ns = never_seen;
    Block* whole = mapped->previous != nullptr && mapped->previous->state == BlockState::free
                       ? mapped->previous
                       : mapped;
    coalesce(*mapped);
    return *whole;
}

void BlockStore::unmap(Block& block, Address begin, std::uint64_t bytes) noexcept {
    unlink(block);
    Block* hole = isolate(block, begin, bytes);
    for (Block* side : {hole->previous, hole->next}) {
        if (side != nullptr && side->state == BlockState::free) {
            link(*side);
        }
    }
    hole->state = BlockState::unmapped;
    hole->segment->mapped -= bytes;
    if (Block* above = hole->next; above != nullptr && above->state == BlockState::unmapped) {
        unlink_hole(*above);
        merge_next(*hole);
    }
    if (Block* below = hole->previous; below != nullptr && below->state == BlockState::unmapped) {
        unlink_hole(*below);
        merge_next(*below);
        hole = below;
    }
    link_hole(*hole);
}

void BlockStore::link_hole(Block& block) noexcept {
    SubPool& in = sub_pool(block.segment->small);
    in.holes.insert(block);
    ++in.hole_count;
    block.by_size = true;
}

void BlockStore::unlink_hole(Block& block) noexcept {
    SubPool& in = sub_pool(block.segment->small);
    in.holes.remove(block);
    --in.hole_count;
    block.by_size = false;
}

BlockStore::Pages BlockStore::whole_pages(Block& block) noexcept {
    if (!block.segment->expandable) {
        return {};
    }
    const Address begin = (block.address + page_bytes - 1) / page_bytes * page_bytes;
    const Address end = (block.address + block.size) / page_bytes * page_bytes;
    return begin < end ? Pages{&block, begin, end - begin} : Pages{};
}

BlockStore::Pages BlockStore::free_pages(bool small, std::uint64_t after_capacity,
                                         Address after) const noexcept {
    // A block with a whole page has the capacity for one, so this order contains it.
    const SizedBlocks<ByCapacity>& order = sub_pool(small).by_capacity;
    Block* block = after_capacity < page_bytes ? order.lower_bound(page_bytes, 0)
                                               : order.upper_bound(after_capacity, after);
    for (; block != nullptr; block = order.upper_bound(block->idle.capacity, block->address)) {
        if (const Pages pages = whole_pages(*block); pages.bytes != 0) {
            return pages;
        }
    }
    return {};
}

BlockStore::Pages BlockStore::largest_free_pages(const Growth& growth) const noexcept {
    const Block* hole = growth.hole;
    const auto extended = [&](const Block* block) {
        return hole != nullptr &&
               ((block == hole->previous && growth.begin == hole->address) ||
                (block == hole->next && growth.begin + growth.bytes == hole->address + hole->size));
    };
    Pages largest;
    std::uint64_t max_capacity = page_bytes - 1;
    for (const bool small : {false, true}) {
        const SizedBlocks<ByCapacity>& order = sub_pool(small).by_capacity;
        for (Block* block = order.last(); block != nullptr && block->idle.capacity > max_capacity;
             block = order.before(block->idle.capacity, block->address)) {
            const Pages pages = extended(block) ? Pages{} : whole_pages(*block);
            if (pages.bytes != 0) {
                largest = pages;
                max_capacity = block->idle.capacity;
            }
        }
    }
    return largest;
}

// --- queries ----------------------------------------------------------------------------------

[[gnu::hot]] const Block* BlockStore::find(Address address) const noexcept {
    return index_.find_containing(address);
}

[[gnu::hot]] Block* BlockStore::find(Address address) noexcept {
    return index_.find_containing(address);
}

std::uint64_t BlockStore::largest_free() const noexcept {
    std::uint64_t largest = 0;
    for (const SubPool* in : sub_pools_or_empty_) {
        if (const Block* block = in->by_size.last()) {
            largest = std::max(largest, block->size);
        }
        if (const Block* block = in->by_capacity.last()) {
            largest = std::max(largest, block->idle.capacity);
        }
    }
    return largest;
}

/// An unused block from the free list, reset.
[[gnu::hot]] Block& BlockStore::new_block() noexcept {
    Block& block = *spare_;
    spare_ = block.next;
    --spare_count_;
    block = Block{};
    block.idle = {};
    block.idle.since_ns = never_seen;
    return block;
}

[[gnu::hot]] void BlockStore::recycle(Block& block) noexcept {
    block.next = spare_;
    spare_ = &block;
    ++spare_count_;
}

/// Splits an unlinked block at an offset; returns the upper part, free and unlinked.
[[gnu::hot]] Block& BlockStore::split(Block& block, std::uint64_t at) noexcept {
    Block& upper = new_block();
    upper.address = block.address + at;
    upper.size = block.size - at;
    upper.segment = block.segment;
    upper.previous = &block;
    upper.next = block.next;
    if (upper.next != nullptr) {
        upper.next->previous = &upper;
    }
    upper.idle.since_ns = block.idle.since_ns;
    block.next = &upper;
    block.size = at;
    ++block.segment->blocks;
    index_.insert(upper);
    return upper;
}

/// Merges an unlinked block's unlinked upper neighbour into it.
[[gnu::hot]] void BlockStore::merge_next(Block& block) noexcept {
    Block* upper = block.next;
    index_.remove(*upper);
    if (upper->size > block.size) {
        block.idle.since_ns = upper->idle.since_ns;  // the larger part decides
    }
    block.size += upper->size;
    block.next = upper->next;
    if (block.next != nullptr) {
        block.next->previous = &block;
    }
    --block.segment->blocks;
    recycle(*upper);
}

[[gnu::hot]] void BlockStore::link(Block& block) noexcept {
    const bool small = block.segment->small;
    SubPool& in = sub_pool(small);
    block.by_size = has_fine_requests(small);
    if (block.by_size) {
        in.by_size.insert(block);
    }
    block.idle.capacity = capacity(block);
    block.by_capacity = coarse(block.idle.capacity);
    if (block.by_capacity) {
        in.by_capacity.insert(block);
    }
    if (counts_as_split(block)) {
        ++in.split_free.blocks;
        in.split_free.bytes += block.size;
    } else {
        block.segment->unused_since = in.takes;
        block.segment->idle_since_ns = never_seen;
    }
}

[[gnu::hot]] void BlockStore::unlink(Block& block) noexcept {
    SubPool& in = sub_pool(block.segment->small);
    if (block.by_size) {
        in.by_size.remove(block);
        block.by_size = false;
    }
    if (block.by_capacity) {
        in.by_capacity.remove(block);
        block.by_capacity = false;
    }
    if (counts_as_split(block)) {
        --in.split_free.blocks;
        in.split_free.bytes -= block.size;
    }
}

std::string BlockStore::validate_free(const Block& block) const {
    const std::string where = "free block " + hex(block.address);
    const SubPool& in = sub_pool(block.segment->small);
    if (block.by_size != has_fine_requests(block.segment->small)) {
        return where + ": its membership in the order by size is wrong";
    }
    if (block.by_capacity != coarse(capacity(block))) {
        return where + ": its membership in the order by capacity is wrong";
    }
    if (block.by_size && in.by_size.lower_bound(block.size, block.address) != &block) {
        return where + ": not found by size";
    }
    if (block.by_capacity && in.by_capacity.lower_bound(capacity(block), block.address) != &block) {
        return where + ": not found by capacity";
    }
    if (block.next != nullptr && block.next->state == BlockState::free) {
        return where + ": its neighbour above is free too";
    }
    return {};
}

std::string BlockStore::validate_hole(const Block& block) const {
    const std::string where = "unmapped block " + hex(block.address);
    if (!block.segment->expandable || block.address % page_bytes != 0 ||
        block.size % page_bytes != 0) {
        return where + " is not whole pages of an expandable range";
    }
    const OrderedBlocks<BySize>& holes = sub_pool(block.segment->small).holes;
    if (!block.by_size || block.by_capacity ||
        holes.lower_bound(block.size, block.address) != &block) {
        return where + ": not indexed as a hole";
    }
    if (block.next != nullptr && block.next->state == BlockState::unmapped) {
        return where + ": its neighbour above is unmapped too";
    }
    return {};
}

std::string BlockStore::validate_segment(const Segment& segment, std::size_t* blocks) const {
    const std::string where = "segment " + hex(segment.base) + ": ";
    Address at = segment.base;
    std::uint32_t count = 0;
    std::uint64_t mapped = 0;
    const Block* previous = nullptr;
    const Block* next = segment.first;
    while (at != segment.base + segment.size) {
        if (next == nullptr) {
            return where + "no block begins at " + hex(at);
        }
        const Block& block = *next;
        next = block.next;
        if (!index_.is_consistent(block)) {
            return where + "block " + hex(block.address) + " is not found by its address";
        }
        if (block.address != at || block.segment != &segment || block.previous != previous ||
            (previous != nullptr && previous->next != &block)) {
            return where + "block " + hex(at) + " is linked wrongly";
        }
        if (block.size == 0 || block.size % policy_.options().rounding != 0 ||
            block.size > segment.base + segment.size - at) {
            return where + "block " + hex(at) + " has size " + std::to_string(block.size);
        }
        if (block.state == BlockState::free || block.state == BlockState::unmapped) {
            std::string problem =
                block.state == BlockState::free ? validate_free(block) : validate_hole(block);
            if (!problem.empty()) {
                return where + problem;
            }
        } else if ((at - segment.base) % policy_.alignment_of(block.size) != 0) {
            return where + "block " + hex(at) + " is misaligned";
        } else if (block.by_size || block.by_capacity) {
            return where + "block " + hex(at) + " is in use but in the order of free blocks";
        }
        mapped += block.state == BlockState::unmapped ? 0 : block.size;
        previous = &block;
        at += block.size;
        ++count;
    }
    if (previous == nullptr || previous->next != nullptr || count != segment.blocks) {
        return where + "has " + std::to_string(count) + " blocks, says " +
               std::to_string(segment.blocks);
    }
    if (mapped != segment.mapped) {
        return where + "has memory for " + std::to_string(mapped) + " bytes, says " +
               std::to_string(segment.mapped);
    }
    *blocks += count;
    return {};
}

std::string BlockStore::validate() const {
    std::size_t blocks = 0;
    const Segment* below = nullptr;
    for (const auto& [base, segment] : segments_) {
        if (segment.base != base || segment.size == 0) {
            return "segment " + hex(base) + " has a wrong base or no size";
        }
        if (below != nullptr && below->base + below->size > base) {
            return "segment " + hex(base) + " overlaps the one below";
        }
        if (std::string problem = validate_segment(segment, &blocks); !problem.empty()) {
            return problem;
        }
        below = &segment;
    }
    if (blocks != index_.count()) {
        return "there are blocks outside of all segments";
    }
    for (const bool small : {true, false}) {
        SplitFree counted;
        std::size_t by_size = 0;
        std::size_t by_capacity = 0;
        std::size_t holes = 0;
        for_each_block([&](const Block& block) {
            if (block.segment->small != small) {
                return;
            }
            holes += block.state == BlockState::unmapped ? 1 : 0;
            if (block.state != BlockState::free) {
                return;
            }
            by_size += block.by_size ? 1 : 0;
            by_capacity += block.by_capacity ? 1 : 0;
            if (counts_as_split(block)) {
                ++counted.blocks;
                counted.bytes += block.size;
            }
        });
        if (by_size != sub_pool(small).by_size.count() ||
            by_capacity != sub_pool(small).by_capacity.count() ||
            holes != sub_pool(small).hole_count) {
            return "the orders of free blocks do not match the free blocks";
        }
        if (counted != sub_pool(small).split_free) {
            return "the count of free blocks in split segments is wrong";
        }
    }
    return {};
}

}  // namespace memlab::allocator
