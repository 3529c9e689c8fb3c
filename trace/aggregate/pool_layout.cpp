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

/// Recomputes the figures of a segment whose range has changed, in O(blocks in it). For the rare
/// changes of mapped segments. Needs unaccount() before the change.
void PoolLayout::recount(Segment& segment) {
    count_gaps(segment);
    account(segment.small, {}, split(segment));
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
    gap_bytes_ += segment.size - segment.active_bytes;
}

/// False when the segment is empty, leaves the address space, or overlaps one restored before.
bool PoolLayout::restore(Segment&& segment) {
    const std::uint64_t base = segment.base;
    if (segment.size == 0 || range_end(base, segment.size) - base != segment.size ||
        !segments_in(base, segment.size).empty()) {
        return false;
    }
    count_gaps(segments_.emplace(base, std::move(segment)).first->second);
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
    if (behind != segments_.end()) {
        detach(behind->second);
    }
    if (front != nullptr) {
        detach(*front);
        front->size += size;
        if (behind != segments_.end()) {
            front->size += behind->second.size;
            copy_blocks(behind->second, *front);
            erase(behind);
        }
        recount(*front);
        return;
    }
    if (behind != segments_.end()) {
        auto node = segments_.extract(behind);
        node.key() = address;
        segments_.insert(std::move(node));
    }
    Segment& segment = segments_[address];
    segment.base = address;
    segment.size += size;
    segment.context = context;
    segment.mapped = true;
    segment.small = small;
    recount(segment);
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

std::uint64_t PoolLayout::unmap(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t end = range_end(address, size);
    std::uint64_t unmapped = 0;
    for (const std::uint64_t base : segments_in(address, size)) {
        const auto at = segments_.find(base);
        if (!at->second.mapped) {
            continue;
        }
        const Segment segment = std::move(at->second);
        unaccount(segment);
        erase(at);
        const std::uint64_t unmap_from = std::max(base, address);
        const std::uint64_t unmap_to = std::min(segment.end(), end);
        keep_mapped(segment, base, unmap_from);
        keep_mapped(segment, unmap_to, segment.end());
        stats.reserved_bytes.decrease(segment.small, unmap_to - unmap_from);
        unmapped += unmap_to - unmap_from;
    }
    stats.num_device_free += unmapped != 0 ? 1 : 0;
    return unmapped;
}

/// Keeps [from, to) of a removed mapped segment, as a segment of its own.
void PoolLayout::keep_mapped(const Segment& of, std::uint64_t from, std::uint64_t to) {
    if (from >= to) {
        return;
    }
    Segment& piece = segments_[from];
    piece.base = from;
    piece.size = to - from;
    piece.context = of.context;
    piece.mapped = true;
    piece.small = of.small;
    copy_blocks(of, piece);
    recount(piece);
}

/// Copies the blocks that lie wholly within `to`; one that was unmapped in part has no layout any
/// more.
void PoolLayout::copy_blocks(const Segment& from, Segment& to) {
    const Blocks& blocks = from.blocks;
    for (auto block = blocks.lower_bound(to.base);
         block != blocks.end() && blocks.key_at(block) < to.end(); block = blocks.next(block)) {
        if (blocks.at(block) <= to.end() - blocks.key_at(block)) {
            to.blocks.insert(blocks.key_at(block), blocks.at(block));
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
