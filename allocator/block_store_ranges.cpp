// Expandable ranges: where to map, what can be unmapped.
#include <algorithm>
#include <new>
#include <utility>

#include "allocator/block_store.hpp"

namespace memlab::allocator {

namespace {

std::uint64_t page_in(const Segment& range, Address address) {
    return (address - range.base) / page_bytes;
}

}  // namespace

bool BlockStore::can_add_range(Address base, std::uint64_t size) const noexcept {
    return base % page_bytes == 0 && size != 0 && size % page_bytes == 0 && can_add(base, size);
}

void BlockStore::add_range(Address base, std::uint64_t size, Area area) noexcept {
    Block& hole = insert_segment(base, size, area);
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

BlockStore::Growth BlockStore::best_growth(std::uint64_t size, Area area) const noexcept {
    const OrderedBlocks<BySize>& holes = sub_pool(area).holes;
    if (!is_packed(area)) {
        Block* const hole = holes.lower_bound(whole_pages(size), 0);
        return hole != nullptr ? Growth{hole, hole->address, whole_pages(size)} : Growth{};
    }
    Growth best;
    unsigned steps = 0;
    const auto offer = [&best](Block& hole, Address begin, std::uint64_t bytes) {
        const auto rank = [](const Block& of) { return std::pair{of.next == nullptr, of.address}; };
        if (best.hole == nullptr || bytes < best.bytes ||
            (bytes == best.bytes && rank(hole) < rank(*best.hole))) {
            best = {&hole, begin, bytes};
        }
    };
    const std::uint64_t unit = policy_.alignment_of(size);
    const auto consider = [&](Block& hole) {
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
            offer(hole, hole.address, whole_pages(begin + size - hole.address));
        } else if (size <= end + above - begin) {
            offer(hole, hole.address, hole.size);
        }
        // ... or downwards from the free block above; a page is aligned enough for any block.
        if (above != 0 && above < size && whole_pages(size - above) <= hole.size) {
            const std::uint64_t bytes = whole_pages(size - above);
            offer(hole, end - bytes, bytes);
        }
    };
    Block* last = holes.find_from(
        0, 0, [&](Block& hole) { return ++steps == max_growth_steps || (consider(hole), false); });
    if (last != nullptr && last->size < whole_pages(size)) {
        last = holes.lower_bound(whole_pages(size), 0);
    }
    if (last != nullptr) {
        consider(*last);
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

bool BlockStore::reserve_chunks(const Growth& growth) noexcept {
    Segment& range = *growth.hole->segment;
    if (!is_packed(range.area)) {
        return true;  // the blocks tell
    }
    try {
        range.chunks.cover(page_in(range, growth.begin + growth.bytes));
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
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
    Segment& range = *mapped->segment;
    range.mapped += growth.bytes;
    sub_pool(range.area).mapped += growth.bytes;
    mapped->idle.since_ns = never_seen;
    if (!is_packed(range.area)) {
        mapped->state = BlockState::free;
        link(*mapped);
        return *mapped;
    }
    const std::uint64_t chunk = chunk_bytes(growth.bytes);
    for (std::uint64_t done = 0; done < growth.bytes; done += chunk) {
        range.chunks.insert(page_in(range, growth.begin + done));
    }
    Block* whole = mapped->previous != nullptr && mapped->previous->state == BlockState::free
                       ? mapped->previous
                       : mapped;
    coalesce(*mapped);
    return *whole;
}

void BlockStore::unmap(Block& block, Address begin, std::uint64_t bytes) noexcept {
    unlink(block);
    Block* hole = isolate(block, begin, bytes);
    for (Block* side : {hole->previous, hole->next}) {  // what was split off
        if (side != nullptr && side->state == BlockState::free && is_packed(side->segment->area)) {
            link(*side);
        }
    }
    hole->state = BlockState::unmapped;
    Segment& range = *hole->segment;
    range.mapped -= bytes;
    sub_pool(range.area).mapped -= bytes;
    for (std::uint64_t done = 0; is_packed(range.area) && done < bytes; done += page_bytes) {
        range.chunks.erase(page_in(range, begin + done));
    }
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
    SubPool& in = sub_pool(block.segment->area);
    in.holes.insert(block);
    ++in.hole_count;
    block.by_size = true;
}

void BlockStore::unlink_hole(Block& block) noexcept {
    SubPool& in = sub_pool(block.segment->area);
    in.holes.remove(block);
    --in.hole_count;
    block.by_size = false;
}

BlockStore::Pages BlockStore::chunks_between(Block& block, Address end) noexcept {
    const Segment& range = *block.segment;
    if (!range.expandable) {
        return {};
    }
    if (!is_packed(range.area)) {
        return end - block.address >= page_bytes ? Pages{&block, block.address, end - block.address}
                                                 : Pages{};
    }
    const std::uint64_t first =
        range.chunks.at_or_above(page_in(range, block.address + page_bytes - 1));
    // The last chunk ends where another begins, or the memory ends.
    const Block* above = block.next;
    while (above != nullptr && above->address != end) {
        above = above->next;
    }
    const bool memory_ends = above == nullptr || above->state == BlockState::unmapped;
    const std::uint64_t last =
        memory_ends ? page_in(range, end) : range.chunks.at_or_below(page_in(range, end));
    if (first == PageSet::none || last == PageSet::none || first >= last) {
        return {};
    }
    return {&block, range.base + first * page_bytes, (last - first) * page_bytes};
}

/// For each free: whether chunks begin and end where the block does is two bits.
[[gnu::hot]] std::uint32_t BlockStore::pages_in_whole_chunks(Block& block) noexcept {
    const Segment& range = *block.segment;
    const std::uint64_t begin = block.address - range.base;
    const std::uint64_t end = begin + block.size;
    const bool ends = block.next == nullptr || block.next->state == BlockState::unmapped ||
                      (end % page_bytes == 0 && range.chunks.contains(end / page_bytes));
    const bool whole = ends && begin % page_bytes == 0 && range.chunks.contains(begin / page_bytes);
    return static_cast<std::uint32_t>((whole ? block.size : whole_chunks(block).bytes) /
                                      page_bytes);
}

std::uint64_t BlockStore::largest_remainder() const noexcept {
    std::uint64_t largest = page_bytes;  // of blocks that are too small for the order by capacity
    for (const Area area : {Area::large, Area::small}) {
        if (sub_pool(area).mapped == 0) {
            continue;
        }
        const SizedBlocks<ByCapacity>& order = sub_pool(area).by_capacity;
        // What a block has less of capacity than of size.
        const std::uint64_t unaligned = policy_.options().coarse_alignment;
        unsigned steps = 0;
        for (Block* block = order.last();
             block != nullptr && block->idle.capacity + unaligned > largest;
             block = order.before(block->idle.capacity, block->address)) {
            if (++steps > max_remainder_steps) {
                largest = block->idle.capacity + unaligned;
                break;
            }
            if (block->segment->expandable) {
                largest = std::max(largest, block->size - block->whole_pages * page_bytes);
            }
        }
    }
    return largest;
}

BlockStore::Pages BlockStore::last_chunks(const Pages& pages, std::uint64_t bytes) noexcept {
    if (bytes >= pages.bytes) {
        return pages;
    }
    const Segment& range = *pages.block->segment;
    if (!is_packed(range.area)) {
        return pages;
    }
    const Address end = pages.begin + pages.bytes;
    const Address begin =
        range.base + range.chunks.at_or_below(page_in(range, end - bytes)) * page_bytes;
    return {pages.block, begin, end - begin};
}

std::uint64_t BlockStore::releasable() const noexcept {
    std::uint64_t bytes =
        sub_pool(Area::own_chunks).by_age.bytes + sub_pool(Area::own_page).by_age.bytes;
    for (const Area area : {Area::large, Area::small}) {
        bytes += sub_pool(area).unused.bytes + sub_pool(area).whole_pages * page_bytes;
    }
    return bytes;
}

BlockStore::Pages BlockStore::pages_for(std::uint64_t bytes, const Growth& growth) const noexcept {
    for (const Area area : {Area::own_chunks, Area::own_page}) {
        const SizedBlocks<BySize>& order = sub_pool(area).by_size;
        Block* block = order.lower_bound(std::max(bytes, page_bytes), 0);
        block = block != nullptr ? block : order.last();
        if (block != nullptr && block->size >= page_bytes) {
            return whole_chunks(*block);
        }
    }
    const Block* hole = growth.hole;
    const auto extended = [&](const Block* block) {
        return hole != nullptr &&
               ((block == hole->previous && growth.begin == hole->address) ||
                (block == hole->next && growth.begin + growth.bytes == hole->address + hole->size));
    };
    Pages largest;
    std::uint64_t max_capacity = page_bytes - 1;
    for (const Area area : {Area::large, Area::small}) {
        if (sub_pool(area).whole_pages == 0) {
            continue;
        }
        const SizedBlocks<ByCapacity>& order = sub_pool(area).by_capacity;
        for (Block* block = order.last(); block != nullptr && block->idle.capacity > max_capacity;
             block = order.before(block->idle.capacity, block->address)) {
            if (block->whole_pages != 0 && !extended(block)) {
                largest = whole_chunks(*block);
                max_capacity = block->idle.capacity;
            }
        }
    }
    return largest;
}

}  // namespace memlab::allocator
