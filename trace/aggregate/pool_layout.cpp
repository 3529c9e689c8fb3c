#include "trace/aggregate/pool_layout.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace memlab::trace {
namespace {

/// The end of a range, clipped to the address space.
std::uint64_t range_end(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t max_size = std::numeric_limits<std::uint64_t>::max() - address;
    return address + std::min(size, max_size);
}

}  // namespace

/// The first segment that a range from `address` may overlap: the one that contains it, or the
/// next.
template <typename SegmentMap>
auto PoolLayout::first_overlapping(SegmentMap& segments, std::uint64_t address) {
    const auto above = segments.upper_bound(address);
    if (above != segments.begin()) {
        const auto before = std::prev(above);
        if (address - before->first < before->second.size) {
            return before;
        }
    }
    return above;
}

std::vector<std::uint64_t> PoolLayout::blocks_in(std::uint64_t address, std::uint64_t size) const {
    std::vector<std::uint64_t> found;
    const std::uint64_t end = range_end(address, size);
    for (const std::uint64_t base : segments_in(address, size)) {
        const Blocks& blocks = segments_.find(base)->second.blocks;
        auto block = blocks.floor(address);
        if (block == blocks.end()) {
            block = blocks.begin();
        } else if (address - blocks.key_at(block) >= blocks.at(block)) {
            block = blocks.next(block);
        }
        for (; block != blocks.end(); block = blocks.next(block)) {
            const std::uint64_t key = blocks.key_at(block);
            if (key >= end && key != address) {
                break;
            }
            found.push_back(key);
        }
    }
    return found;
}

bool PoolLayout::has_block(std::uint64_t address) const {
    const auto at = first_overlapping(segments_, address);
    return at != segments_.end() && at->second.blocks.find(address) != at->second.blocks.end();
}

std::vector<std::uint64_t> PoolLayout::segments_in(std::uint64_t address,
                                                   std::uint64_t size) const {
    std::vector<std::uint64_t> found;
    const std::uint64_t end = range_end(address, size);
    for (auto at = first_overlapping(segments_, address);
         at != segments_.end() && (at->first < end || at->first == address); ++at) {
        found.push_back(at->first);
    }
    return found;
}

PoolLayout::Split PoolLayout::split(const Segment& segment) {
    if (segment.active_bytes == 0) {
        return {};
    }
    return {segment.gaps, segment.size - segment.active_bytes};
}

void PoolLayout::account(bool small, Split before, Split after) {
    stats.inactive_split.change(small, before.count, after.count);
    stats.inactive_split_bytes.change(small, before.bytes, after.bytes);
}

PoolLayout::Segment* PoolLayout::find_segment(std::uint64_t address) {
    Segment*& hint = hints_[(address >> hint_shift) % hints];
    if (hint != nullptr && address - hint->base < hint->size) {
        return hint;
    }
    const auto at = first_overlapping(segments_, address);
    if (at == segments_.end() || address < at->first) {
        return nullptr;
    }
    hint = &at->second;
    return hint;
}

std::uint64_t PoolLayout::segment_size(std::uint64_t address) const {
    const auto at = segments_.find(address);
    return at == segments_.end() ? 0 : at->second.size;
}

std::vector<PoolLayout::Range> PoolLayout::segments() const {
    std::vector<Range> all;
    all.reserve(segments_.size());
    for (const auto& [base, segment] : segments_) {
        all.push_back({base, segment.size});
    }
    return all;
}

std::vector<std::uint64_t> PoolLayout::context_segments(std::uint32_t context) const {
    std::vector<std::uint64_t> found;
    for (const auto& [base, segment] : segments_) {
        if (segment.context == context) {
            found.push_back(base);
        }
    }
    return found;
}

template <typename Use>
void PoolLayout::for_each_gap(const Segment& segment, Use use) {
    const Blocks& blocks = segment.blocks;
    std::uint64_t at = segment.base;
    for (auto block = blocks.begin(); block != blocks.end(); block = blocks.next(block)) {
        if (blocks.key_at(block) > at) {
            use(blocks.key_at(block) - at);
        }
        at = blocks.key_at(block) + blocks.at(block);
    }
    if (at < segment.end()) {
        use(segment.end() - at);
    }
}

std::uint64_t PoolLayout::largest_gap() {
    std::uint64_t largest = 0;
    for (auto& [base, segment] : segments_) {
        if (segment.recount_gaps) {
            segment.largest_gap = 0;
            for_each_gap(segment, [&each = segment](std::uint64_t size) {
                each.largest_gap = std::max(each.largest_gap, size);
            });
            segment.recount_gaps = false;
        }
        largest = std::max(largest, segment.largest_gap);
    }
    return largest;
}

/// Counts a segment whose range or blocks have changed, after unaccount() and the change.
void PoolLayout::account_anew(const Segment& segment) {
    account(segment.small, {}, split(segment));
    gap_bytes_ += segment.size - segment.active_bytes;
}

void PoolLayout::count_gaps(Segment& segment) {
    segment.gaps = segment.largest_gap = 0;
    segment.active_bytes = segment.size;
    segment.recount_gaps = false;
    for_each_gap(segment, [&segment](std::uint64_t size) {
        ++segment.gaps;
        segment.largest_gap = std::max(segment.largest_gap, size);
        segment.active_bytes -= size;
    });
}

/// False when the segment is empty, leaves the address space, or overlaps one restored before.
bool PoolLayout::restore(Segment&& segment) {
    const std::uint64_t base = segment.base;
    if (segment.size == 0 || range_end(base, segment.size) - base != segment.size ||
        !segments_in(base, segment.size).empty()) {
        return false;
    }
    Segment& restored = segments_.emplace(base, std::move(segment)).first->second;
    count_gaps(restored);
    gap_bytes_ += restored.size - restored.active_bytes;
    return true;
}

void PoolLayout::unaccount(const Segment& segment) {
    account(segment.small, split(segment), {});
    gap_bytes_ -= segment.size - segment.active_bytes;
}

std::uint64_t PoolLayout::add_segment(std::uint64_t address, std::uint64_t size,
                                      std::uint32_t context, bool mapped) {
    size = range_end(address, size) - address;
    if (size == 0) {
        return 0;
    }
    ++stats.num_device_alloc;
    if (mapped) {
        add_mapped(address, size, context);
        return size;
    }
    const bool small = size <= small_segment;
    stats.segment.increase(small, 1);
    if (oversize(size)) {
        stats.oversize_segments.increase(1);
    }
    stats.reserved_bytes.increase(small, size);
    Segment& segment = segments_[address];
    segment.base = address;
    segment.size = size;
    segment.gaps = 1;
    segment.largest_gap = size;
    segment.context = context;
    segment.small = small;
    gap_bytes_ += size;
    return size;
}

/// Extends the adjacent mapped segments, and merges both if there are two: blocks may span the
/// boundary.
void PoolLayout::add_mapped(std::uint64_t address, std::uint64_t size, std::uint32_t context) {
    const auto joins = [context](const Segment& segment) {
        return segment.mapped && segment.context == context;
    };
    auto behind = segments_.find(address + size);
    if (behind != segments_.end() && !joins(behind->second)) {
        behind = segments_.end();
    }
    Segment* front = address == 0 ? nullptr : find_segment(address - 1);
    if (front != nullptr && !joins(*front)) {
        front = nullptr;
    }
    bool small = size <= small_segment;
    if (front != nullptr) {
        small = front->small;
    } else if (behind != segments_.end()) {
        small = behind->second.small;
    }
    stats.reserved_bytes.increase(small, size);
    const auto detach = [&](const Segment& segment) {
        unaccount(segment);
        if (segment.small != small) {  // merges segments of both pools: the lower one's pool wins
            stats.reserved_bytes.decrease(segment.small, segment.size);
            stats.reserved_bytes.increase(small, segment.size);
        }
    };
    Segment fresh;
    fresh.base = address;
    fresh.size = size;
    fresh.gaps = 1;
    fresh.largest_gap = size;
    fresh.context = context;
    fresh.mapped = true;
    fresh.small = small;
    if (front != nullptr) {
        detach(*front);
        join(*front, std::move(fresh));
    } else {
        front = &segments_.emplace(address, std::move(fresh)).first->second;
    }
    if (behind != segments_.end()) {
        detach(behind->second);
        Segment above = std::move(behind->second);
        erase(behind);
        join(*front, std::move(above));
    }
    front->small = small;
    account_anew(*front);
}

/// Adds a segment, not accounted, that begins where another one ends; in O(the fewer blocks).
void PoolLayout::join(Segment& below, Segment&& above) {
    const auto last = below.blocks.previous(below.blocks.end());
    const std::uint64_t head =
        (above.blocks.begin() == above.blocks.end() ? above.end()
                                                    : above.blocks.key_at(above.blocks.begin())) -
        above.base;
    const std::uint64_t tail = gap_between(below, last, below.blocks.end()).end -
                               gap_between(below, last, below.blocks.end()).start;
    below.gaps += above.gaps - (head != 0 && tail != 0 ? 1 : 0);
    below.active_bytes += above.active_bytes;
    below.recount_gaps = below.recount_gaps || above.recount_gaps;
    below.largest_gap = std::max({below.largest_gap, above.largest_gap, head + tail});
    below.size += above.size;
    if (above.block_count > below.block_count) {
        std::swap(below.blocks, above.blocks);
        std::swap(below.block_count, above.block_count);
    }
    for (auto block = above.blocks.begin(); block != above.blocks.end();
         block = above.blocks.next(block)) {
        below.blocks.insert(above.blocks.key_at(block), above.blocks.at(block));
    }
    below.block_count += above.block_count;
}

void PoolLayout::set_max_split_size(std::uint64_t bytes) {
    constexpr std::uint64_t max_value = std::numeric_limits<std::int64_t>::max();
    stats.max_split_size = static_cast<std::int64_t>(std::min(bytes, max_value));
}

std::uint64_t PoolLayout::remove_segment(std::uint64_t address) {
    const auto at = segments_.find(address);
    if (at == segments_.end()) {
        return 0;
    }
    const Segment& segment = at->second;
    const std::uint64_t size = segment.size;
    ++stats.num_device_free;
    if (!segment.mapped) {
        stats.segment.decrease(segment.small, 1);
        if (oversize(size)) {
            stats.oversize_segments.decrease(1);
        }
    }
    stats.reserved_bytes.decrease(segment.small, size);
    unaccount(segment);
    erase(at);
    return size;
}

std::vector<PoolLayout::Range> PoolLayout::mapped_in(std::uint64_t address,
                                                     std::uint64_t size) const {
    const std::uint64_t end = range_end(address, size);
    std::vector<Range> mapped;
    for (const std::uint64_t base : segments_in(address, size)) {
        const Segment& segment = segments_.find(base)->second;
        if (segment.mapped) {
            const std::uint64_t from = std::max(base, address);
            mapped.push_back({from, std::min(segment.end(), end) - from});
        }
    }
    return mapped;
}

std::uint64_t PoolLayout::unmap(std::uint64_t address, std::uint64_t size) {
    std::uint64_t unmapped = 0;
    for (const Range& range : mapped_in(address, size)) {
        const auto at = first_overlapping(segments_, range.address);
        Segment segment = std::move(at->second);
        unaccount(segment);
        erase(at);
        const bool small = segment.small;
        cut(std::move(segment), range.address, range.address + range.size);
        stats.reserved_bytes.decrease(small, range.size);
        unmapped += range.size;
    }
    stats.num_device_free += unmapped != 0 ? 1 : 0;
    return unmapped;
}

/// Keeps what a removed mapped segment has on both sides of [from, to); in O(the fewer blocks). A
/// block that was unmapped in part has no layout any more.
void PoolLayout::cut(Segment&& segment, std::uint64_t from, std::uint64_t to) {
    Blocks& blocks = segment.blocks;
    auto first = blocks.lower_bound(from);
    if (const auto below = blocks.previous(first);
        below != blocks.end() && blocks.at(below) > from - blocks.key_at(below)) {
        first = below;
    }
    while (first != blocks.end() && blocks.key_at(first) < to) {
        const std::uint64_t key = blocks.key_at(first);
        segment.active_bytes -= blocks.at(first);
        --segment.block_count;
        blocks.erase(first);
        first = blocks.lower_bound(key);
        segment.recount_gaps = true;
        segment.gaps = 0;
    }
    if (segment.gaps == 0 && segment.size != segment.active_bytes) {
        count_gaps(segment);
    }
    const Gap around = gap_between(segment, blocks.previous(first), first);
    segment.gaps += static_cast<std::uint64_t>(around.start != from) +
                    static_cast<std::uint64_t>(around.end != to);
    segment.gaps -= 1;
    // The blocks on the side that has fewer move.
    auto up = blocks.begin();
    auto down = blocks.previous(blocks.end());
    while (up != first && down != blocks.end() && blocks.key_at(down) > from) {
        up = blocks.next(up);
        down = blocks.previous(down);
    }
    const bool low_moves = up == first;
    Segment moved;
    moved.base = low_moves ? segment.base : to;
    moved.size = low_moves ? from - segment.base : segment.end() - to;
    moved.context = segment.context;
    moved.mapped = true;
    moved.small = segment.small;
    const auto next_to_move = [&] {
        auto block = low_moves ? blocks.begin() : blocks.previous(blocks.end());
        const bool moves = block != blocks.end() && (blocks.key_at(block) < from) == low_moves;
        return moves ? block : blocks.end();
    };
    for (auto block = next_to_move(); block != blocks.end(); block = next_to_move()) {
        moved.blocks.insert(blocks.key_at(block), blocks.at(block));
        ++moved.block_count;
        blocks.erase(block);
    }
    count_gaps(moved);
    segment.size = low_moves ? segment.end() - to : from - segment.base;
    segment.base = low_moves ? to : segment.base;
    segment.gaps -= moved.gaps;
    segment.active_bytes -= moved.active_bytes;
    segment.block_count -= moved.block_count;
    segment.recount_gaps = true;
    for (Segment* side : {&moved, &segment}) {
        if (side->size != 0) {
            const std::uint64_t base = side->base;
            account_anew(segments_.emplace(base, std::move(*side)).first->second);
        }
    }
}

void PoolLayout::erase(Segments::iterator segment) {
    hints_.fill(nullptr);
    segments_.erase(segment);
}

/// `previous` and `next` are the blocks around the gap, or end().
PoolLayout::Gap PoolLayout::gap_between(const Segment& segment, Blocks::Position previous,
                                        Blocks::Position next) {
    const Blocks& blocks = segment.blocks;
    return {previous == blocks.end() ? segment.base : blocks.key_at(previous) + blocks.at(previous),
            next == blocks.end() ? segment.end() : blocks.key_at(next)};
}

PoolLayout::AddedBlock PoolLayout::add_block(std::uint64_t address, std::uint64_t size) {
    Segment* const in = find_segment(address);
    if (in == nullptr || size == 0 || size > in->end() - address) [[unlikely]] {
        return add_without_layout(address, size);
    }
    Segment& segment = *in;
    const std::uint64_t end = address + size;
    const auto next = segment.blocks.lower_bound(address);
    const Gap gap = gap_between(segment, segment.blocks.previous(next), next);
    if (gap.start > address || gap.end < end) {
        return {.overlaps = true};
    }
    segment.blocks.insert(next, address, size);
    ++segment.block_count;
    const Split before = split(segment);
    segment.gaps += static_cast<std::uint64_t>(gap.start != address) +
                    static_cast<std::uint64_t>(gap.end != end);
    segment.gaps -= 1;
    segment.active_bytes += size;
    gap_bytes_ -= size;
    if (segment.gaps <= 1) {
        segment.largest_gap = segment.size - segment.active_bytes;
        segment.recount_gaps = false;
    } else if (gap.end - gap.start == segment.largest_gap) {
        segment.recount_gaps = true;
    }
    account(segment.small, before, split(segment));
    stats.active.increase(segment.small, 1);
    stats.active_bytes.increase(segment.small, size);
    return {.small = segment.small};
}

PoolLayout::AddedBlock PoolLayout::add_without_layout(std::uint64_t address, std::uint64_t size) {
    if (!blocks_in(address, size).empty()) {
        return {.overlaps = true};
    }
    const bool small = size <= small_block;
    stats.active.increase(small, 1);
    stats.active_bytes.increase(small, size);
    return {.small = small};
}

void PoolLayout::remove_block(std::uint64_t address, std::uint64_t size, bool small) {
    stats.active.decrease(small, 1);
    stats.active_bytes.decrease(small, size);
    Segment* const in = find_segment(address);
    if (in == nullptr) {
        return;  // a block without layout
    }
    Segment& segment = *in;
    const auto block = segment.blocks.find(address);
    if (block == segment.blocks.end() || segment.blocks.at(block) != size) {
        return;
    }
    const Gap gap =
        gap_between(segment, segment.blocks.previous(block), segment.blocks.next(block));
    segment.blocks.erase(block);
    --segment.block_count;
    const Split before = split(segment);
    segment.gaps -= static_cast<std::uint64_t>(gap.start != address) +
                    static_cast<std::uint64_t>(gap.end != address + size);
    segment.gaps += 1;
    segment.active_bytes -= size;
    gap_bytes_ += size;
    if (segment.gaps == 1) {
        segment.largest_gap = segment.size - segment.active_bytes;
        segment.recount_gaps = false;
    } else {
        segment.largest_gap = std::max(segment.largest_gap, gap.end - gap.start);
    }
    account(small, before, split(segment));
}

}  // namespace memlab::trace
