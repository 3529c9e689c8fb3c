#include "profiler/trace/pool_figures.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace memlab::trace {
namespace {

/// The end of a range, which no input makes wrap.
std::uint64_t end_of(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - address;
    return address + std::min(size, room);
}

/// Keys of `ranges` (address to size) that overlap [address, address + size).
template <typename Map, typename SizeOf>
std::vector<std::uint64_t> overlapping(const Map& ranges, std::uint64_t address, std::uint64_t size,
                                       SizeOf size_of) {
    std::vector<std::uint64_t> found;
    const std::uint64_t end = end_of(address, size);
    auto at = ranges.upper_bound(address);
    if (at != ranges.begin()) {
        const auto before = std::prev(at);
        if (end_of(before->first, size_of(before->second)) > address || before->first == address) {
            found.push_back(before->first);
        }
    }
    for (; at != ranges.end() && at->first < end; ++at) {
        found.push_back(at->first);
    }
    return found;
}

}  // namespace

void Stat::increase(std::uint64_t by) {
    current += by;
    allocated += by;
    peak = std::max(peak, current);
}

void Stat::decrease(std::uint64_t by) {
    current -= by;
    freed += by;
}

void StatByPool::increase(bool small, std::uint64_t by) {
    all.increase(by);
    (small ? small_pool : large_pool).increase(by);
}

void StatByPool::decrease(bool small, std::uint64_t by) {
    all.decrease(by);
    (small ? small_pool : large_pool).decrease(by);
}

std::vector<std::uint64_t> PoolFigures::blocks_in(std::uint64_t address, std::uint64_t size) const {
    return overlapping(blocks_, address, size, [](std::uint64_t bytes) { return bytes; });
}

std::vector<std::uint64_t> PoolFigures::segments_in(std::uint64_t address,
                                                    std::uint64_t size) const {
    return overlapping(segments_, address, size,
                       [](const Segment& segment) { return segment.size; });
}

PoolFigures::Split PoolFigures::split_of(const Segment& segment) {
    if (segment.blocks == 0) {
        return {};
    }
    return {segment.gaps, segment.size - segment.active_bytes};
}

void PoolFigures::account(bool small, Split before, Split after) {
    const auto apply = [small](StatByPool& stat, std::uint64_t from, std::uint64_t to) {
        if (to > from) {
            stat.increase(small, to - from);
        } else if (to < from) {
            stat.decrease(small, from - to);
        }
    };
    apply(stats.inactive_split, before.count, after.count);
    apply(stats.inactive_split_bytes, before.bytes, after.bytes);
}

PoolFigures::Segments::iterator PoolFigures::segment_of(std::uint64_t address) {
    auto at = segments_.upper_bound(address);
    if (at == segments_.begin()) {
        return segments_.end();
    }
    --at;
    return address - at->first < at->second.size ? at : segments_.end();
}

void PoolFigures::add_gap(std::uint64_t size) {
    if (size != 0) {
        ++gaps_[size];
        gap_bytes_ += size;
    }
}

void PoolFigures::remove_gap(std::uint64_t size) {
    const auto at = gaps_.find(size);
    if (at == gaps_.end()) {
        return;
    }
    gap_bytes_ -= size;
    if (--at->second == 0) {
        gaps_.erase(at);
    }
}

template <typename Use>
void PoolFigures::for_each_gap(Segments::const_iterator segment, Use use) const {
    const std::uint64_t end = end_of(segment->first, segment->second.size);
    std::uint64_t at = segment->first;
    for (auto block = blocks_.lower_bound(at); block != blocks_.end() && block->first < end;
         ++block) {
        if (block->first > at) {
            use(block->first - at);
        }
        at = block->first + block->second;
    }
    if (at < end) {
        use(end - at);
    }
}

void PoolFigures::forget_gaps(Segments::const_iterator segment) {
    for_each_gap(segment, [this](std::uint64_t size) { remove_gap(size); });
}

/// The layout of a segment whose range has changed, from its blocks: O(blocks in it), for the rare
/// changes of mapped segments. The segment's gaps must have been forgotten.
void PoolFigures::recount(Segments::iterator at) {
    Segment& segment = at->second;
    segment.blocks = segment.active_bytes = segment.gaps = 0;
    const std::uint64_t end = end_of(at->first, segment.size);
    for (auto block = blocks_.lower_bound(at->first); block != blocks_.end() && block->first < end;
         ++block) {
        ++segment.blocks;
        segment.active_bytes += block->second;
    }
    for_each_gap(at, [this, &segment](std::uint64_t size) {
        ++segment.gaps;
        add_gap(size);
    });
    account(segment.small, {}, split_of(segment));
}

std::uint64_t PoolFigures::add_segment(std::uint64_t address, std::uint64_t size,
                                       std::uint32_t context, bool mapped) {
    size = end_of(address, size) - address;
    if (size == 0) {
        return 0;
    }
    bool small = size <= small_segment;
    ++stats.num_device_alloc;
    if (mapped) {
        // Grow the neighbour in front, or take in the one behind: blocks may span the seam.
        std::uint64_t total = size;
        const auto behind = segments_.find(address + size);
        const bool join_behind =
            behind != segments_.end() && behind->second.mapped && behind->second.context == context;
        const auto front = address == 0 ? segments_.end() : segment_of(address - 1);
        const bool join_front =
            front != segments_.end() && front->second.mapped && front->second.context == context;
        if (join_front) {
            small = front->second.small;
        } else if (join_behind) {
            small = behind->second.small;
        }
        stats.reserved_bytes.increase(small, size);
        const auto absorb = [&](Segments::iterator at) {
            account(at->second.small, split_of(at->second), {});
            forget_gaps(at);
            if (at->second.small != small) {  // the seam joins the two pools: the front's wins
                stats.reserved_bytes.decrease(at->second.small, at->second.size);
                stats.reserved_bytes.increase(small, at->second.size);
            }
            total += at->second.size;
        };
        if (join_behind) {
            absorb(behind);
            segments_.erase(behind);
        }
        std::uint64_t base = address;
        if (join_front) {
            absorb(front);
            base = front->first;
        }
        Segment& segment = segments_[base];
        segment.size = total;
        segment.context = context;
        segment.mapped = true;
        segment.small = small;
        recount(segments_.find(base));
        return size;
    }
    stats.segment.increase(small, 1);
    if (oversize(size)) {
        stats.oversize_segments.increase(1);
    }
    stats.reserved_bytes.increase(small, size);
    segments_[address] = {.size = size, .context = context, .small = small, .gaps = 1};
    add_gap(size);
    return size;
}

void PoolFigures::set_max_split_size(std::uint64_t bytes) {
    constexpr std::uint64_t most = std::numeric_limits<std::int64_t>::max();
    stats.max_split_size = static_cast<std::int64_t>(std::min(bytes, most));
}

std::uint64_t PoolFigures::remove_segment(std::uint64_t address) {
    const auto at = segments_.find(address);
    if (at == segments_.end()) {
        return 0;
    }
    const Segment& segment = at->second;
    const std::uint64_t size = segment.size;
    ++stats.num_device_free;
    if (!segment.mapped) {
        stats.segment.decrease(segment.small, 1);
        if (oversize(segment.size)) {
            stats.oversize_segments.decrease(1);
        }
    }
    stats.reserved_bytes.decrease(segment.small, segment.size);
    account(segment.small, split_of(segment), {});
    forget_gaps(at);
    segments_.erase(at);
    return size;
}

std::uint64_t PoolFigures::unmap(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t end = end_of(address, size);
    std::uint64_t gone = 0;
    for (const std::uint64_t base : segments_in(address, size)) {
        const auto at = segments_.find(base);
        if (!at->second.mapped) {
            continue;
        }
        const Segment segment = at->second;
        const std::uint64_t segment_end = end_of(base, segment.size);
        account(segment.small, split_of(segment), {});
        forget_gaps(at);
        segments_.erase(at);
        const auto keep = [&](std::uint64_t from, std::uint64_t to) {
            if (from < to) {
                Segment piece = segment;
                piece.size = to - from;
                recount(segments_.emplace(from, piece).first);
            }
        };
        keep(base, std::max(base, address));
        keep(std::min(segment_end, end), segment_end);
        const std::uint64_t cut = std::min(segment_end, end) - std::max(base, address);
        stats.reserved_bytes.decrease(segment.small, cut);
        gone += cut;
    }
    stats.num_device_free += gone != 0 ? 1 : 0;
    return gone;
}

bool PoolFigures::add_block(std::uint64_t address, std::uint64_t size) {
    const auto at = segment_of(address);
    const bool inside =
        at != segments_.end() && size != 0 && size <= at->second.size - (address - at->first);
    const bool small = inside ? at->second.small : size <= small_block;
    stats.active.increase(small, 1);
    stats.active_bytes.increase(small, size);
    if (!inside) {
        return small;
    }
    Segment& segment = at->second;
    const Split before = split_of(segment);
    const auto block = blocks_.emplace(address, size).first;
    std::uint64_t gap_start = at->first;
    if (block != blocks_.begin()) {
        const auto previous = std::prev(block);
        gap_start = std::max(gap_start, end_of(previous->first, previous->second));
    }
    std::uint64_t gap_end = at->first + segment.size;
    const auto next = std::next(block);
    if (next != blocks_.end()) {
        gap_end = std::min(gap_end, next->first);
    }
    const std::uint64_t front = address - gap_start;
    const std::uint64_t rear = gap_end - (address + size);
    remove_gap(gap_end - gap_start);
    add_gap(front);
    add_gap(rear);
    segment.gaps += static_cast<std::uint64_t>(front != 0) + static_cast<std::uint64_t>(rear != 0);
    segment.gaps -= 1;
    ++segment.blocks;
    segment.active_bytes += size;
    account(small, before, split_of(segment));
    return small;
}

void PoolFigures::remove_block(std::uint64_t address, std::uint64_t size, bool small) {
    stats.active.decrease(small, 1);
    stats.active_bytes.decrease(small, size);
    const auto block = blocks_.find(address);
    const auto at = segment_of(address);
    if (block == blocks_.end() || block->second != size || at == segments_.end()) {
        return;  // it had no layout
    }
    Segment& segment = at->second;
    const Split before = split_of(segment);
    std::uint64_t gap_start = at->first;
    if (block != blocks_.begin()) {
        const auto previous = std::prev(block);
        gap_start = std::max(gap_start, end_of(previous->first, previous->second));
    }
    std::uint64_t gap_end = at->first + segment.size;
    const auto next = std::next(block);
    if (next != blocks_.end()) {
        gap_end = std::min(gap_end, next->first);
    }
    const std::uint64_t front = address - gap_start;
    const std::uint64_t rear = gap_end - (address + size);
    blocks_.erase(block);
    remove_gap(front);
    remove_gap(rear);
    add_gap(gap_end - gap_start);
    segment.gaps -= static_cast<std::uint64_t>(front != 0) + static_cast<std::uint64_t>(rear != 0);
    segment.gaps += 1;
    --segment.blocks;
    segment.active_bytes -= size;
    account(small, before, split_of(segment));
}

}  // namespace memlab::trace
