#include "allocator/block_store.hpp"

#include <iterator>
#include <limits>
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

void link_into(FreeOrder& order, FreeHook& hook, std::uint64_t size, Block& block) noexcept {
    hook.node.key() = {size, block.address};
    hook.node.mapped() = &block;
    hook.position = order.insert(std::move(hook.node)).position;
    hook.linked = true;
}

void unlink_from(FreeOrder& order, FreeHook& hook) noexcept {
    if (hook.linked) {
        hook.node = order.extract(hook.position);
        hook.linked = false;
    }
}

}  // namespace

bool BlockStore::reserve() noexcept {
    try {
        while (spare_count_ < needed_spares) {
            // Node handles come out of a container only: a map of one, taken apart again.
            std::map<Address, Block> made;
            Block& block = made.try_emplace(0).first->second;
            for (FreeHook* hook : {&block.by_size, &block.by_capacity}) {
                FreeOrder order;
                order.try_emplace({0, 0}, nullptr);
                hook->node = order.extract(order.begin());
            }
            spares_.at(spare_count_++) = made.extract(made.begin());
        }
        if (spare_segment_.empty()) {
            std::map<Address, Segment> made;
            made.try_emplace(0);
            spare_segment_ = made.extract(made.begin());
        }
        return true;
    } catch (const std::bad_alloc&) {
        return false;
    }
}

std::uint64_t BlockStore::capacity(const Block& block) const noexcept {
    return policy_.aligned_capacity(block.address - block.segment->base, block.size);
}

bool BlockStore::fits(const Block& block, std::uint64_t size, bool small) const noexcept {
    return block.segment->small == small && (coarse(size) ? capacity(block) : block.size) >= size &&
           policy_.may_use(size, block.size);
}

Block* BlockStore::take(std::uint64_t size, bool small) noexcept {
    FreeOrder& order = coarse(size) ? half(small).by_capacity : half(small).by_size;
    const auto best = order.lower_bound({size, 0});
    if (best == order.end() || !policy_.may_use(size, best->second->size)) {
        return nullptr;
    }
    return &take_from(*best->second, size);
}

Block& BlockStore::take_from(Block& from, std::uint64_t size) noexcept {
    const bool small = from.segment->small;
    Block* block = &from;
    unlink(*block);
    ++half(small).takes;

    const std::uint64_t lead = coarse(size) ? block->size - capacity(*block) : 0;
    if (lead != 0) {
        Block& rest = cut(*block, lead);
        link(*block);
        block = &rest;
    }
    const std::uint64_t tail = block->size - size;
    if (tail != 0 && policy_.cuts_tail(size, tail, small, block->next == nullptr)) {
        link(cut(*block, size));
    }
    block->state = BlockState::live;
    return *block;
}

void BlockStore::put_back(Block& block) noexcept {
    Block* whole = &block;
    whole->state = BlockState::free;
    if (Block* below = block.previous; below != nullptr && below->state == BlockState::free) {
        unlink(*below);
        absorb_next(*below);
        whole = below;
    }
    if (Block* above = whole->next; above != nullptr && above->state == BlockState::free) {
        unlink(*above);
        absorb_next(*whole);
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
    spare_segment_.key() = base;
    Segment& segment = segments_.insert(std::move(spare_segment_)).position->second;
    segment = Segment{};
    segment.base = base;
    segment.size = size;
    segment.small = small;
    segment.blocks = 1;
    Block& block = insert_spare(base);
    block.size = size;
    block.segment = &segment;
    link(block);
    return block;
}

Segment* BlockStore::unused_segment(bool small, std::uint64_t after_size,
                                    Address after_base) const noexcept {
    const FreeOrder& order = half(small).by_capacity;
    for (auto it = order.upper_bound({after_size, after_base}); it != order.end(); ++it) {
        if (it->second->segment->blocks == 1) {
            return it->second->segment;
        }
    }
    return nullptr;
}

void BlockStore::remove_segment(Address base, LeavingSegments& leaving) noexcept {
    unlink(blocks_.find(base)->second);
    recycle(base);
    leaving.insert(segments_.extract(base));
}

void BlockStore::clear() noexcept {
    small_ = Half{};
    large_ = Half{};
    blocks_.clear();
    segments_.clear();
}

const Block* BlockStore::find(Address address) const noexcept {
    const auto above = blocks_.upper_bound(address);
    if (above == blocks_.begin()) {
        return nullptr;
    }
    const Block& block = std::prev(above)->second;
    return address - block.address < block.size ? &block : nullptr;
}

Block* BlockStore::find(Address address) noexcept {
    return const_cast<Block*>(std::as_const(*this).find(address));
}

std::uint64_t BlockStore::largest_free() const noexcept {
    std::uint64_t largest = 0;
    for (const FreeOrder* order : {&small_.by_size, &small_.by_capacity, &large_.by_capacity}) {
        if (!order->empty() && order->rbegin()->first.first > largest) {
            largest = order->rbegin()->first.first;
        }
    }
    return largest;
}

/// A fresh free block out of the spares, at `address`.
Block& BlockStore::insert_spare(Address address) noexcept {
    auto node = std::move(spares_.at(--spare_count_));
    node.key() = address;
    Block& old = node.mapped();
    Block fresh;
    fresh.by_size.node = std::move(old.by_size.node);
    fresh.by_capacity.node = std::move(old.by_capacity.node);
    fresh.address = address;
    old = std::move(fresh);
    return blocks_.insert(std::move(node)).position->second;
}

/// Takes a block out of the map; keeps its node while there is room.
void BlockStore::recycle(Address address) noexcept {
    auto node = blocks_.extract(address);
    if (spare_count_ < spares_.size()) {
        spares_.at(spare_count_++) = std::move(node);
    }
}

/// Cuts an unlinked block in two; returns the upper part, free and unlinked.
Block& BlockStore::cut(Block& block, std::uint64_t at) noexcept {
    Block& upper = insert_spare(block.address + at);
    upper.size = block.size - at;
    upper.segment = block.segment;
    upper.previous = &block;
    upper.next = block.next;
    if (upper.next != nullptr) {
        upper.next->previous = &upper;
    }
    block.next = &upper;
    block.size = at;
    ++block.segment->blocks;
    return upper;
}

/// Joins an unlinked block and its unlinked upper neighbour, which ceases to be.
void BlockStore::absorb_next(Block& block) noexcept {
    Block* gone = block.next;
    block.size += gone->size;
    block.next = gone->next;
    if (block.next != nullptr) {
        block.next->previous = &block;
    }
    --block.segment->blocks;
    recycle(gone->address);
}

void BlockStore::link(Block& block) noexcept {
    const bool small = block.segment->small;
    Half& in = half(small);
    if (has_fine_requests(small)) {
        link_into(in.by_size, block.by_size, block.size, block);
    }
    if (coarse(capacity(block))) {
        link_into(in.by_capacity, block.by_capacity, capacity(block), block);
    }
    if (block.segment->blocks > 1) {
        ++in.split_free.blocks;
        in.split_free.bytes += block.size;
    } else {
        block.segment->unused_since = in.takes;
        block.segment->idle_since_ns = Segment::unknown_time;
    }
}

void BlockStore::unlink(Block& block) noexcept {
    Half& in = half(block.segment->small);
    unlink_from(in.by_size, block.by_size);
    unlink_from(in.by_capacity, block.by_capacity);
    if (block.segment->blocks > 1) {
        --in.split_free.blocks;
        in.split_free.bytes -= block.size;
    }
}

std::string BlockStore::validate_free(const Block& block) const {
    const std::string where = "free block " + hex(block.address);
    const Half& in = half(block.segment->small);
    if (block.by_size.linked != has_fine_requests(block.segment->small)) {
        return where + ": its place by size is wrong";
    }
    if (block.by_capacity.linked != coarse(capacity(block))) {
        return where + ": its place by capacity is wrong";
    }
    if (block.by_size.linked) {
        const auto found = in.by_size.find({block.size, block.address});
        if (found == in.by_size.end() || found->second != &block) {
            return where + ": not found by size";
        }
    }
    if (block.by_capacity.linked) {
        const auto found = in.by_capacity.find({capacity(block), block.address});
        if (found == in.by_capacity.end() || found->second != &block) {
            return where + ": not found by capacity";
        }
    }
    if (block.next != nullptr && block.next->state == BlockState::free) {
        return where + ": its neighbour above is free too";
    }
    return {};
}

std::string BlockStore::validate_segment(const Segment& segment, std::size_t* blocks) const {
    const std::string where = "segment " + hex(segment.base) + ": ";
    Address at = segment.base;
    std::uint32_t count = 0;
    const Block* previous = nullptr;
    while (at != segment.base + segment.size) {
        const auto found = blocks_.find(at);
        if (found == blocks_.end()) {
            return where + "no block begins at " + hex(at);
        }
        const Block& block = found->second;
        if (block.address != at || block.segment != &segment || block.previous != previous ||
            (previous != nullptr && previous->next != &block)) {
            return where + "block " + hex(at) + " is linked wrongly";
        }
        if (block.size == 0 || block.size % policy_.options().rounding != 0 ||
            block.size > segment.base + segment.size - at) {
            return where + "block " + hex(at) + " has size " + std::to_string(block.size);
        }
        if (block.state != BlockState::free &&
            (at - segment.base) % policy_.alignment_of(block.size) != 0) {
            return where + "block " + hex(at) + " is misaligned";
        }
        if (block.state != BlockState::free && (block.by_size.linked || block.by_capacity.linked)) {
            return where + "block " + hex(at) + " is in use and among the free blocks";
        }
        if (block.state == BlockState::free) {
            if (std::string problem = validate_free(block); !problem.empty()) {
                return where + problem;
            }
        }
        previous = &block;
        at += block.size;
        ++count;
    }
    if (previous == nullptr || previous->next != nullptr || count != segment.blocks) {
        return where + "has " + std::to_string(count) + " blocks, says " +
               std::to_string(segment.blocks);
    }
    *blocks += count;
    return {};
}

std::string BlockStore::validate() const {
    std::size_t blocks = 0;
    const Segment* below = nullptr;
    for (const auto& [base, segment] : segments_) {
        if (segment.base != base || segment.size == 0) {
            return "segment " + hex(base) + " is not what it should be";
        }
        if (below != nullptr && below->base + below->size > base) {
            return "segment " + hex(base) + " overlaps the one below";
        }
        if (std::string problem = validate_segment(segment, &blocks); !problem.empty()) {
            return problem;
        }
        below = &segment;
    }
    if (blocks != blocks_.size()) {
        return "there are blocks outside of all segments";
    }
    for (const bool small : {true, false}) {
        SplitFree counted;
        std::size_t by_size = 0;
        std::size_t by_capacity = 0;
        for (const auto& entry : blocks_) {
            const Block& block = entry.second;
            if (block.state != BlockState::free || block.segment->small != small) {
                continue;
            }
            by_size += block.by_size.linked ? 1 : 0;
            by_capacity += block.by_capacity.linked ? 1 : 0;
            if (block.segment->blocks > 1) {
                ++counted.blocks;
                counted.bytes += block.size;
            }
        }
        if (by_size != half(small).by_size.size() ||
            by_capacity != half(small).by_capacity.size()) {
            return "the index of free blocks holds others than the free blocks";
        }
        if (counted != half(small).split_free) {
            return "the count of free blocks in split segments is wrong";
        }
    }
    return {};
}

}  // namespace memlab::allocator
