// The checks of every guarantee in block_store.hpp.
#include "allocator/block_store.hpp"

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

std::string BlockStore::validate_free(const Block& block) const {
    const std::string where = "free block " + hex(block.address);
    const SubPool& in = sub_pool(block.segment->area);
    if (block.by_size != has_fine_requests(block.segment->area)) {
        return where + ": its membership in the order by size is wrong";
    }
    if (block.by_capacity != coarse(capacity(block), block.segment->area)) {
        return where + ": its membership in the order by capacity is wrong";
    }
    if (block.by_size && in.by_size.lower_bound(block.size, block.address) != &block) {
        return where + ": not found by size";
    }
    if (block.by_capacity && in.by_capacity.lower_bound(capacity(block), block.address) != &block) {
        return where + ": not found by capacity";
    }
    if (block.next != nullptr && block.next->state == BlockState::free &&
        merges_with_below(*block.next)) {
        return where + ": its neighbour above is free too";
    }
    // whole_chunks() changes nothing, but hands the block out.
    if (is_packed(block.segment->area) &&
        block.whole_pages * page_bytes != whole_chunks(const_cast<Block&>(block)).bytes) {
        return where + ": its whole chunks are noted wrongly";
    }
    return {};
}

std::string BlockStore::validate_hole(const Block& block) const {
    const std::string where = "unmapped block " + hex(block.address);
    if (!block.segment->expandable || block.address % page_bytes != 0 ||
        block.size % page_bytes != 0) {
        return where + " is not whole pages of an expandable range";
    }
    const OrderedBlocks<BySize>& holes = sub_pool(block.segment->area).holes;
    if (!block.by_size || block.by_capacity ||
        holes.lower_bound(block.size, block.address) != &block) {
        return where + ": not indexed as a hole";
    }
    if (block.next != nullptr && block.next->state == BlockState::unmapped) {
        return where + ": its neighbour above is unmapped too";
    }
    const std::uint64_t page = (block.address - block.segment->base) / page_bytes;
    const std::uint64_t chunk = block.segment->chunks.at_or_above(page);
    if (chunk < page + block.size / page_bytes) {
        return where + ": a chunk begins in it";
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
        } else if ((at - segment.base) % (is_packed(segment.area) ? policy_.alignment_of(block.size)
                                                                  : policy_.options().rounding) !=
                   0) {
            return where + "block " + hex(at) + " is misaligned";
        } else if (block.by_size || block.by_capacity) {
            return where + "block " + hex(at) + " is in use but in the order of free blocks";
        }
        if (segment.area == Area::own_chunks && (at | block.size) % page_bytes != 0) {
            return where + "block " + hex(at) + " shares a page";
        }
        if (segment.area == Area::own_page && block.state != BlockState::unmapped &&
            at / page_bytes != (at + block.size - 1) / page_bytes) {
            return where + "block " + hex(at) + " reaches into another page";
        }
        if (segment.expandable && is_packed(segment.area) && block.state != BlockState::unmapped &&
            (previous == nullptr || previous->state == BlockState::unmapped) &&
            segment.chunks.at_or_above((at - segment.base) / page_bytes) !=
                (at - segment.base) / page_bytes) {
            return where + "no chunk begins at " + hex(at) + ", where memory does";
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

/// Also whether the nodes have its bytes.
template <typename Node>
bool BlockStore::is_by_age(const ByAge<Node>& order) {
    const Node* older = nullptr;
    bool unseen = false;
    std::uint64_t bytes = 0;
    for (Node* each = order.oldest; each != nullptr; each = order.links(*each).right) {
        unseen = unseen || each == order.unseen;
        if (order.links(*each).left != older || unseen != (order.since_ns(*each) == never_seen)) {
            return false;
        }
        bytes += each->size;
        older = each;
    }
    return older == order.newest && unseen == (order.unseen != nullptr) && bytes == order.bytes;
}

std::string BlockStore::validate_area(Area area) const {
    const SubPool& in = sub_pool(area);
    SplitFree counted;
    std::size_t by_size = 0;
    std::size_t by_capacity = 0;
    std::size_t holes = 0;
    std::uint64_t by_age = 0;
    std::uint64_t unused = 0;
    std::uint64_t whole_pages = 0;
    for_each_block([&](const Block& block) {
        if (block.segment->area != area) {
            return;
        }
        holes += block.state == BlockState::unmapped ? 1 : 0;
        if (block.state != BlockState::free) {
            return;
        }
        by_size += block.by_size ? 1 : 0;
        by_capacity += block.by_capacity ? 1 : 0;
        by_age += goes_back(block) ? block.size : 0;
        if (counts_as_split(block)) {
            ++counted.blocks;
            counted.bytes += block.size;
        } else if (!block.segment->expandable) {
            unused += block.size;
        }
        whole_pages += block.whole_pages;
    });
    if (by_size != in.by_size.count() || by_capacity != in.by_capacity.count() ||
        holes != in.hole_count || by_age != in.by_age.bytes) {
        return "the orders of free blocks do not match the free blocks";
    }
    if (counted != in.split_free) {
        return "the count of free blocks in segments is wrong";
    }
    if (whole_pages != in.whole_pages) {
        return "the whole chunks of free blocks are counted wrongly";
    }
    if (unused != in.unused.bytes) {
        return "the wholly free segments are counted wrongly";
    }
    if (!is_by_age(in.by_age) || !is_by_age(in.unused)) {
        return "the order of free blocks or segments by age is wrong";
    }
    std::uint64_t mapped = 0;
    for (const auto& [base, segment] : segments_) {
        mapped += segment.area == area && segment.expandable ? segment.mapped : 0;
    }
    return mapped == in.mapped ? "" : "the memory in ranges is counted wrongly";
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
    for (const Area area : all_areas) {
        if (std::string problem = validate_area(area); !problem.empty()) {
            return problem;
        }
    }
    return {};
}

}  // namespace memlab::allocator
