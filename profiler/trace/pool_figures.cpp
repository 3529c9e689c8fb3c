#include "profiler/trace/pool_figures.hpp"

#include <algorithm>
#include <limits>

namespace memlab::trace {
namespace {

/// The end of a range, which no input makes wrap.
std::uint64_t end_of(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t room = std::numeric_limits<std::uint64_t>::max() - address;
    return address + std::min(size, room);
}

/// Keys of `ranges` that overlap [address, address + size).
template <typename Map, typename SizeOf>
std::vector<std::uint64_t> overlapping(const Map& ranges, std::uint64_t address, std::uint64_t size,
                                       SizeOf size_of) {
    std::vector<std::uint64_t> found;
    const std::uint64_t end = end_of(address, size);
    auto at = ranges.floor(address);
    if (at == ranges.end()) {
        at = ranges.begin();
    } else {
        const std::uint64_t before = ranges.key_at(at);
        if (end_of(before, size_of(ranges.at(at))) > address || before == address) {
            found.push_back(before);
        }
        at = ranges.next(at);
    }
    for (; at != ranges.end() && ranges.key_at(at) < end; at = ranges.next(at)) {
        found.push_back(ranges.key_at(at));
    }
    return found;
}

}  // namespace

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
    // One of the two changes nothing; which one is not worth a branch that nobody can foresee.
    const auto apply = [small](StatByPool& stat, std::uint64_t from, std::uint64_t to) {
        stat.increase(small, std::max(from, to) - from);
        stat.decrease(small, std::max(from, to) - to);
    };
    apply(stats.inactive_split, before.count, after.count);
    apply(stats.inactive_split_bytes, before.bytes, after.bytes);
}

PoolFigures::Segments::Place PoolFigures::segment_of(std::uint64_t address) const {
    const auto has_address = [&](Segments::Place at) {
        return address - segments_.key_at(at) < segments_.at(at).size;
    };
    Segments::Place& hint = hints_[(address >> hint_shift) % hints];
    if (segments_.is_at_key(hint) && has_address(hint)) {
        return hint;
    }
    const auto at = segments_.floor(address);
    if (at == segments_.end() || !has_address(at)) {
        return segments_.end();
    }
    hint = at;
    return at;
}

std::uint64_t PoolFigures::segment_size(std::uint64_t address) const {
    const auto at = segments_.find(address);
    return at == segments_.end() ? 0 : segments_.at(at).size;
}

std::vector<PoolFigures::Range> PoolFigures::segments() const {
    std::vector<Range> all;
    for (auto at = segments_.begin(); at != segments_.end(); at = segments_.next(at)) {
        all.push_back({segments_.key_at(at), segments_.at(at).size});
    }
    return all;
}

std::vector<std::uint64_t> PoolFigures::segments_of(std::uint32_t context) const {
    std::vector<std::uint64_t> found;
    for (auto at = segments_.begin(); at != segments_.end(); at = segments_.next(at)) {
        if (segments_.at(at).context == context) {
            found.push_back(segments_.key_at(at));
        }
    }
    return found;
}

template <typename Use>
void PoolFigures::for_each_gap(Segments::Place segment, Use use) const {
    std::uint64_t at = segments_.key_at(segment);
    const std::uint64_t end = end_of(at, segments_.at(segment).size);
    for (auto block = blocks_.lower_bound(at);
         block != blocks_.end() && blocks_.key_at(block) < end; block = blocks_.next(block)) {
        if (blocks_.key_at(block) > at) {
            use(blocks_.key_at(block) - at);
        }
        at = blocks_.key_at(block) + blocks_.at(block);
    }
    if (at < end) {
        use(end - at);
    }
}

std::uint64_t PoolFigures::largest_gap() {
    std::uint64_t largest = 0;
    for (auto at = segments_.begin(); at != segments_.end(); at = segments_.next(at)) {
        Segment& segment = segments_.at(at);
        if (segment.recount_gaps) {
            segment.largest_gap = 0;
            for_each_gap(at, [&segment](std::uint64_t size) {
                segment.largest_gap = std::max(segment.largest_gap, size);
            });
            segment.recount_gaps = false;
        }
        largest = std::max(largest, segment.largest_gap);
    }
    return largest;
}

/// The layout of a segment whose range has changed, from its blocks: O(blocks in it), for the rare
/// changes of mapped segments. Its gaps must not be in gap_bytes_.
void PoolFigures::recount(Segments::Place at) {
    Segment& segment = segments_.at(at);
    segment.blocks = segment.active_bytes = segment.gaps = segment.largest_gap = 0;
    segment.recount_gaps = false;
    const std::uint64_t end = end_of(segments_.key_at(at), segment.size);
    for (auto block = blocks_.lower_bound(segments_.key_at(at));
         block != blocks_.end() && blocks_.key_at(block) < end; block = blocks_.next(block)) {
        ++segment.blocks;
        segment.active_bytes += blocks_.at(block);
    }
    for_each_gap(at, [&segment](std::uint64_t size) {
        ++segment.gaps;
        segment.largest_gap = std::max(segment.largest_gap, size);
    });
    gap_bytes_ += segment.size - segment.active_bytes;
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
        Segment joined{.size = size, .context = context, .mapped = true};
        const auto joins = [&](Segments::Place at) {
            return at != segments_.end() && segments_.at(at).mapped &&
                   segments_.at(at).context == context;
        };
        const auto behind = segments_.find(address + size);
        const auto front = address == 0 ? segments_.end() : segment_of(address - 1);
        const bool join_behind = joins(behind);
        const bool join_front = joins(front);
        if (join_front) {
            small = segments_.at(front).small;
        } else if (join_behind) {
            small = segments_.at(behind).small;
        }
        joined.small = small;
        stats.reserved_bytes.increase(small, size);
        const auto absorb = [&](Segments::Place at) {
            const Segment& segment = segments_.at(at);
            account(segment.small, split_of(segment), {});
            gap_bytes_ -= segment.size - segment.active_bytes;
            if (segment.small != small) {  // the seam joins the two pools: the front's wins
                stats.reserved_bytes.decrease(segment.small, segment.size);
                stats.reserved_bytes.increase(small, segment.size);
            }
            joined.size += segment.size;
        };
        std::uint64_t base = address;
        if (join_behind) {
            absorb(behind);
        }
        if (join_front) {
            absorb(front);
            base = segments_.key_at(front);
        }
        if (join_behind) {
            segments_.erase(behind);
        }
        if (join_front) {
            const auto at = segments_.find(base);
            segments_.at(at) = joined;
            recount(at);
        } else {
            recount(segments_.insert(base, joined));
        }
        return size;
    }
    stats.segment.increase(small, 1);
    if (oversize(size)) {
        stats.oversize_segments.increase(1);
    }
    stats.reserved_bytes.increase(small, size);
    segments_.insert(
        address,
        {.size = size, .gaps = 1, .largest_gap = size, .context = context, .small = small});
    gap_bytes_ += size;
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
    const Segment& segment = segments_.at(at);
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
    gap_bytes_ -= segment.size - segment.active_bytes;
    segments_.erase(at);
    return size;
}

std::uint64_t PoolFigures::unmap(std::uint64_t address, std::uint64_t size) {
    const std::uint64_t end = end_of(address, size);
    std::uint64_t gone = 0;
    for (const std::uint64_t base : segments_in(address, size)) {
        const auto at = segments_.find(base);
        const Segment segment = segments_.at(at);
        if (!segment.mapped) {
            continue;
        }
        const std::uint64_t segment_end = end_of(base, segment.size);
        account(segment.small, split_of(segment), {});
        gap_bytes_ -= segment.size - segment.active_bytes;
        segments_.erase(at);
        const auto keep = [&](std::uint64_t from, std::uint64_t to) {
            if (from < to) {
                Segment piece = segment;
                piece.size = to - from;
                recount(segments_.insert(from, piece));
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

/// `previous` and `next` are the blocks around the range, or end().
PoolFigures::Neighbours PoolFigures::around(Segments::Place segment, Blocks::Place previous,
                                            Blocks::Place next, std::uint64_t address,
                                            std::uint64_t size) const {
    std::uint64_t start = segments_.key_at(segment);
    std::uint64_t end = start + segments_.at(segment).size;
    if (previous != blocks_.end()) {
        start = std::max(start, blocks_.key_at(previous) + blocks_.at(previous));
    }
    if (next != blocks_.end()) {
        end = std::min(end, blocks_.key_at(next));
    }
    return {address - start, end - (address + size)};
}

PoolFigures::AddedBlock PoolFigures::add_block(std::uint64_t address, std::uint64_t size) {
    const auto next = blocks_.lower_bound(address);
    if (next != blocks_.end() &&
        (blocks_.key_at(next) == address || blocks_.key_at(next) < end_of(address, size))) {
        return {.overlaps = true};
    }
    const auto previous = blocks_.previous(next);
    if (previous != blocks_.end() && blocks_.key_at(previous) + blocks_.at(previous) > address) {
        return {.overlaps = true};
    }
    const auto at = segment_of(address);
    const bool inside = at != segments_.end() && size != 0 &&
                        size <= segments_.at(at).size - (address - segments_.key_at(at));
    const bool small = inside ? segments_.at(at).small : size <= small_block;
    if (inside) {
        const Neighbours gap = around(at, previous, next, address, size);
        blocks_.insert(next, address, size);
        Segment& segment = segments_.at(at);
        const Split before = split_of(segment);
        segment.gaps +=
            static_cast<std::uint64_t>(gap.front != 0) + static_cast<std::uint64_t>(gap.rear != 0);
        segment.gaps -= 1;
        ++segment.blocks;
        segment.active_bytes += size;
        gap_bytes_ -= size;
        if (segment.gaps <= 1) {
            segment.largest_gap = segment.size - segment.active_bytes;
            segment.recount_gaps = false;
        } else if (gap.front + size + gap.rear == segment.largest_gap) {
            segment.recount_gaps = true;
        }
        account(small, before, split_of(segment));
    }
    stats.active.increase(small, 1);
    stats.active_bytes.increase(small, size);
    return {.small = small};
}

void PoolFigures::remove_block(std::uint64_t address, std::uint64_t size, bool small) {
    stats.active.decrease(small, 1);
    stats.active_bytes.decrease(small, size);
    const auto block = blocks_.find(address);
    const auto at = segment_of(address);
    if (block == blocks_.end() || blocks_.at(block) != size || at == segments_.end()) {
        return;  // it had no layout
    }
    const Neighbours gap = around(at, blocks_.previous(block), blocks_.next(block), address, size);
    blocks_.erase(block);
    Segment& segment = segments_.at(at);
    const Split before = split_of(segment);
    segment.gaps -=
        static_cast<std::uint64_t>(gap.front != 0) + static_cast<std::uint64_t>(gap.rear != 0);
    segment.gaps += 1;
    --segment.blocks;
    segment.active_bytes -= size;
    gap_bytes_ += size;
    if (segment.gaps == 1) {
        segment.largest_gap = segment.size - segment.active_bytes;
        segment.recount_gaps = false;
    } else {
        segment.largest_gap = std::max(segment.largest_gap, gap.front + size + gap.rear);
    }
    account(small, before, split_of(segment));
}

}  // namespace memlab::trace
