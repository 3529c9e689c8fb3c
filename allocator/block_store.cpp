#include "allocator/block_store.hpp"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace memlab::allocator {

BlockStore::BlockStore(const SizePolicy& policy) : policy_(policy) {}

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
    return is_packed(block.segment->area)
               ? policy_.aligned_capacity(block.address - block.segment->base, block.size)
               : block.size;
}

[[gnu::hot]] bool BlockStore::fits(const Block& block, std::uint64_t size,
                                   Area area) const noexcept {
    if (block.segment->area != area || (area == Area::own_chunks && block.size != size)) {
        return false;
    }
    return (coarse(size, area) ? capacity(block) : block.size) >= size &&
           policy_.may_use(size, block.size);
}

[[gnu::hot]] Block* BlockStore::best_unshared_fit(std::uint64_t size, Area area) const noexcept {
    Block* const best = sub_pool(area).by_size.lower_bound(size, 0);
    const bool fits = best != nullptr && (area != Area::own_chunks || best->size == size);
    return fits && policy_.may_use(size, best->size) ? best : nullptr;
}

[[gnu::hot]] Block& BlockStore::take_from(Block& from, std::uint64_t size) noexcept {
    const Area area = from.segment->area;
    Block* block = &from;
    unlink(*block);
    ++sub_pool(area).takes;

    const std::uint64_t lead = coarse(size, area) ? block->size - capacity(*block) : 0;
    if (lead != 0) {
        Block& rest = split(*block, lead);
        link(*block);
        block = &rest;
    }
    const std::uint64_t tail = block->size - size;
    if (tail != 0 && policy_.splits_tail(size, tail, is_small(area), block->next == nullptr)) {
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

/// Makes an unlinked block free and merges it with its free neighbours, where the area does.
[[gnu::hot]] void BlockStore::coalesce(Block& block) noexcept {
    Block* whole = &block;
    whole->state = BlockState::free;
    if (Block* below = block.previous;
        below != nullptr && below->state == BlockState::free && merges_with_below(block)) {
        unlink(*below);
        merge_next(*below);
        whole = below;
    }
    if (Block* above = whole->next;
        above != nullptr && above->state == BlockState::free && merges_with_below(*above)) {
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

Block& BlockStore::add_segment(Address base, std::uint64_t size, Area area) noexcept {
    Block& block = insert_segment(base, size, area);
    block.segment->mapped = size;
    link(block);
    return block;
}

/// Adds a segment of one unlinked block.
Block& BlockStore::insert_segment(Address base, std::uint64_t size, Area area) noexcept {
    spare_segment_.key() = base;
    Segment& segment = segments_.insert(std::move(spare_segment_)).position->second;
    Block& block = new_block();
    segment = Segment{};
    segment.base = base;
    segment.size = size;
    segment.first = &block;
    segment.area = area;
    segment.blocks = 1;
    block.address = base;
    block.size = size;
    block.segment = &segment;
    index_.insert(block);
    return block;
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
    sub_pools_.reset();
    index_.clear();
    segments_.clear();
    spare_segment_ = {};
    slabs_ = std::vector<std::unique_ptr<Slab>>();
    spare_ = nullptr;
    spare_count_ = 0;
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
    for (const Area area : all_areas) {
        if (const Block* block = sub_pool(area).by_size.last()) {
            largest = std::max(largest, block->size);
        }
        if (const Block* block = sub_pool(area).by_capacity.last()) {
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
    Segment& segment = *block.segment;
    SubPool& in = sub_pool(segment.area);
    block.by_size = has_fine_requests(segment.area);
    if (block.by_size) {
        in.by_size.insert(block);
    }
    block.idle.capacity = capacity(block);
    block.by_capacity = coarse(block.idle.capacity, segment.area);
    if (block.by_capacity) {
        in.by_capacity.insert(block);
    }
    block.whole_pages = 0;
    if (segment.expandable && is_packed(segment.area) && block.idle.capacity >= page_bytes) {
        block.whole_pages = pages_in_whole_chunks(block);
    }
    in.whole_pages += block.whole_pages;
    if (goes_back(block)) {
        block.idle.since_ns = never_seen;
        in.by_age.push(block);
    }
    if (segment.expandable) {
        note_idle(block);
    } else if (segment.blocks > 1) {
        ++in.split_free.blocks;
        in.split_free.bytes += block.size;
    } else {
        in.unused.push(segment);
        segment.unused_since = in.takes;
        segment.idle_since_ns = never_seen;
        note_idle(block);
    }
}

/// Notes what a tick has to know of a block whose memory might be given back.
[[gnu::hot]] void BlockStore::note_idle(Block& block) noexcept {
    // After an unseen one the next tick looks at all: nothing more has to be noted until then.
    if (idle_.unseen || policy_.options().trim_after_ns == 0 || block.idle.capacity < page_bytes) {
        return;
    }
    if (!block.segment->expandable) {
        idle_.unseen = true;
    } else if (!is_packed(block.segment->area) || block.whole_pages != 0) {
        if (block.idle.since_ns == never_seen) {
            idle_.unseen = true;
        } else {
            idle_.oldest_ns = std::min(idle_.oldest_ns, block.idle.since_ns);
        }
    }
}

[[gnu::hot]] void BlockStore::unlink(Block& block) noexcept {
    SubPool& in = sub_pool(block.segment->area);
    if (goes_back(block)) {
        in.by_age.remove(block);
    }
    if (block.by_size) {
        in.by_size.remove(block);
        block.by_size = false;
    }
    if (block.by_capacity) {
        in.by_capacity.remove(block);
        block.by_capacity = false;
    }
    in.whole_pages -= block.whole_pages;
    if (Segment& segment = *block.segment; !segment.expandable) {
        if (segment.blocks > 1) {
            --in.split_free.blocks;
            in.split_free.bytes -= block.size;
        } else {
            in.unused.remove(segment);
        }
    }
}

}  // namespace memlab::allocator
