#include "tests/unit/allocator/checking_observer.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

namespace memlab::allocator::testing {

namespace {

void change(Stat& stat, std::int64_t by) {
    stat.current += by;
    stat.peak = std::max(stat.peak, stat.current);
    (by > 0 ? stat.allocated : stat.freed) += by > 0 ? by : -by;
}

void change(StatByPool& stat, bool small, std::int64_t by) {
    change(stat.all, by);
    change(small ? stat.small_pool : stat.large_pool, by);
}

std::int64_t bytes(std::uint64_t size) {
    return static_cast<std::int64_t>(size);
}

}  // namespace

CheckingObserver::CheckingObserver(const PoolOptions& options) : options_(options) {
    if (options.max_split_size != PoolOptions::no_limit) {
        stats_.max_split_size = bytes(options.max_split_size);
    }
}

void CheckingObserver::problem(const std::string& text, Address address) {
    problems_.push_back(text + " (address " + std::to_string(address) + ", event " +
                        std::to_string(events_.size()) + ")");
}

bool CheckingObserver::small_segment(Address segment) const {
    const auto found = segments_.find(segment);
    return found != segments_.end() && found->second.small;
}

std::vector<CheckingObserver::Gap> CheckingObserver::gaps(bool small) const {
    std::vector<Gap> found;
    for (const auto& [base, segment] : segments_) {
        if (segment.small != small) {
            continue;
        }
        Address at = base;
        for (auto it = in_use_.lower_bound(base);
             it != in_use_.end() && it->first < base + segment.size; ++it) {
            if (it->first > at) {
                found.push_back({at, it->first, base, segment.size});
            }
            at = it->first + it->second.size;
        }
        if (at < base + segment.size) {
            found.push_back({at, base + segment.size, base, segment.size});
        }
    }
    return found;
}

/// By trying the steps one after the other.
std::uint64_t CheckingObserver::expected_size(std::uint64_t requested) const {
    const std::uint64_t asked = std::max<std::uint64_t>(requested, 1);
    std::uint64_t power = 1;
    while (power * 2 <= asked) {
        power *= 2;
    }
    std::size_t range = 0;
    while (range < 15 && (std::uint64_t{2} << 20 << range) <= asked) {
        ++range;
    }
    const std::uint64_t divisions = options_.roundup_power2_divisions.at(range);
    const bool steps = divisions > 1 && asked > options_.rounding * divisions;
    const std::uint64_t step = steps ? power / divisions : options_.rounding;
    std::uint64_t size = steps ? power : asked / step * step;
    while (size < asked) {
        size += step;
    }
    return size;
}

void CheckingObserver::expect_placement(const BlockInfo& block) {
    const std::uint64_t size = expected_size(block.requested);
    const bool small = size <= options_.small_size;
    const std::uint64_t unit =
        size >= options_.coarse_alignment ? options_.coarse_alignment : options_.rounding;

    const Gap* best = nullptr;
    std::uint64_t best_room = 0;
    Address best_begin = 0;
    const std::vector<Gap> all = gaps(small);
    for (const Gap& gap : all) {
        const Address begin = gap.segment + (gap.begin - gap.segment + unit - 1) / unit * unit;
        if (begin + size > gap.end) {
            continue;
        }
        const std::uint64_t room = gap.end - begin;
        if (best == nullptr || room < best_room) {
            best = &gap;
            best_room = room;
            best_begin = begin;
        }
    }
    // A large block is kept for large requests: then only what is fresh may be taken.
    const bool oversize = size >= options_.max_split_size;
    if (best != nullptr && best->segment != fresh_segment_) {
        const std::uint64_t whole = best->end - best->begin;
        if (whole >= options_.max_split_size &&
            (!oversize || whole - size >= options_.max_non_split_rounding)) {
            const auto fresh = std::find_if(all.begin(), all.end(), [&](const Gap& gap) {
                return gap.segment == fresh_segment_;
            });
            best = fresh == all.end() ? nullptr : &*fresh;
            best_begin = fresh_segment_;
        }
    }
    if (best == nullptr) {
        problem("allocated where no gap fits", block.address);
        return;
    }
    if (fresh_segment_ != 0 && best->segment != fresh_segment_) {
        problem("grew although a gap fits", best->begin);
    }
    if (block.address != best_begin) {
        problem("the best fit is at " + std::to_string(best_begin), block.address);
    }
    const std::uint64_t tail = best->end - best_begin - size;
    const bool before_neighbour = best->end != best->segment + best->segment_size;
    const bool cut = small || (tail > options_.small_size && !oversize) ||
                     (before_neighbour && tail < options_.coarse_alignment);
    if (block.size != size + (cut ? 0 : tail)) {
        problem("has size " + std::to_string(block.size) + " for " + std::to_string(size),
                block.address);
    }
}

void CheckingObserver::recount_split(bool small) {
    std::int64_t count = 0;
    std::int64_t total = 0;
    for (const Gap& gap : gaps(small)) {
        if (gap.end - gap.begin != gap.segment_size) {
            ++count;
            total += bytes(gap.end - gap.begin);
        }
    }
    const auto now = [small](const StatByPool& stat) {
        return (small ? stat.small_pool : stat.large_pool).current;
    };
    change(stats_.inactive_split, small, count - now(stats_.inactive_split));
    change(stats_.inactive_split_bytes, small, total - now(stats_.inactive_split_bytes));
}

void CheckingObserver::on_alloc(const BlockInfo& block, Tag tag) {
    events_.push_back({Seen::What::alloc, block.address, block.size, block.requested, tag});
    const auto segment = segments_.find(block.segment);
    if (segment == segments_.end() || segment->second.size != block.segment_size ||
        block.address < block.segment ||
        block.address + block.size > block.segment + block.segment_size) {
        problem("allocated outside of its segment", block.address);
        return;
    }
    auto above = in_use_.upper_bound(block.address);
    if (above != in_use_.end() && above->first < block.address + block.size) {
        problem("overlaps the block in use above", block.address);
    }
    if (above != in_use_.begin()) {
        const auto& [address, range] = *std::prev(above);
        if (address + range.size > block.address) {
            problem("overlaps the block in use below", block.address);
        }
    }
    expect_placement(block);
    fresh_segment_ = 0;
    in_use_[block.address] = {block.size, block.requested, block.id, true};
    if (block.size >= options_.max_split_size) {
        change(stats_.oversize_allocations, 1);
    }
    const bool small = segment->second.small;
    change(stats_.allocation, small, 1);
    change(stats_.allocated_bytes, small, bytes(block.size));
    change(stats_.active, small, 1);
    change(stats_.active_bytes, small, bytes(block.size));
    change(stats_.requested_bytes, small, bytes(block.requested));
    recount_split(small);
}

void CheckingObserver::on_free_requested(const BlockInfo& block, Tag tag) {
    events_.push_back(
        {Seen::What::free_requested, block.address, block.size, block.requested, tag});
    fresh_segment_ = 0;
    const auto found = in_use_.find(block.address);
    if (found == in_use_.end() || !found->second.live || found->second.id != block.id ||
        found->second.size != block.size || found->second.requested != block.requested) {
        problem("a free was requested of what is not live", block.address);
        return;
    }
    found->second.live = false;
    if (block.size >= options_.max_split_size) {
        change(stats_.oversize_allocations, -1);
    }
    const bool small = small_segment(block.segment);
    change(stats_.allocation, small, -1);
    change(stats_.allocated_bytes, small, -bytes(block.size));
}

void CheckingObserver::on_free_completed(const BlockInfo& block) {
    events_.push_back({Seen::What::free_completed, block.address, block.size, block.requested, 0});
    fresh_segment_ = 0;
    const auto found = in_use_.find(block.address);
    if (found == in_use_.end() || found->second.live || found->second.id != block.id ||
        found->second.size != block.size) {
        problem("a free completed that was not requested", block.address);
        return;
    }
    in_use_.erase(found);
    const bool small = small_segment(block.segment);
    change(stats_.active, small, -1);
    change(stats_.active_bytes, small, -bytes(block.size));
    change(stats_.requested_bytes, small, -bytes(block.requested));
    recount_split(small);
}

void CheckingObserver::on_segment_alloc(Address segment, std::uint64_t size, Tag tag) {
    events_.push_back({Seen::What::segment_alloc, segment, size, 0, tag});
    for (const auto& [base, other] : segments_) {
        if (segment < base + other.size && base < segment + size) {
            problem("a new segment overlaps an old one", segment);
        }
    }
    // By size: the tests' options keep small segments smaller than all others.
    const bool small = size == options_.small_segment;
    segments_[segment] = {size, small};
    fresh_segment_ = segment;
    ++stats_.num_device_alloc;
    change(stats_.segment, small, 1);
    change(stats_.reserved_bytes, small, bytes(size));
    if (size >= options_.max_split_size) {
        change(stats_.oversize_segments, 1);
    }
}

void CheckingObserver::on_segment_free(Address segment, std::uint64_t size) {
    events_.push_back({Seen::What::segment_free, segment, size, 0, 0});
    fresh_segment_ = 0;
    const auto found = segments_.find(segment);
    if (found == segments_.end() || found->second.size != size) {
        problem("a segment was given back that is not there", segment);
        return;
    }
    const auto first = in_use_.lower_bound(segment);
    if (first != in_use_.end() && first->first < segment + size) {
        problem("a segment was given back with a block in use", first->first);
    }
    const bool small = found->second.small;
    segments_.erase(found);
    ++stats_.num_device_free;
    change(stats_.segment, small, -1);
    change(stats_.reserved_bytes, small, -bytes(size));
    if (size >= options_.max_split_size) {
        change(stats_.oversize_segments, -1);
    }
}

void CheckingObserver::on_alloc_retry(std::uint64_t requested, Tag tag) {
    events_.push_back({Seen::What::alloc_retry, 0, 0, requested, tag});
    ++stats_.num_alloc_retries;
}

void CheckingObserver::on_segment_map(Address address, std::uint64_t size, Tag tag) {
    events_.push_back({Seen::What::segment_map, address, size, 0, tag});
    problem("memory was mapped into a pool of whole segments", address);
}

void CheckingObserver::on_segment_unmap(Address address, std::uint64_t size) {
    events_.push_back({Seen::What::segment_unmap, address, size, 0, 0});
    problem("memory was unmapped from a pool of whole segments", address);
}

void CheckingObserver::on_make_room(std::uint64_t requested, Tag tag) {
    events_.push_back({Seen::What::make_room, 0, 0, requested, tag});
}

void CheckingObserver::on_empty_cache() {
    events_.push_back({Seen::What::empty_cache, 0, 0, 0, 0});
}

void CheckingObserver::on_tick(std::uint64_t now_ns) {
    events_.push_back({Seen::What::tick, 0, 0, now_ns, 0});
}

void CheckingObserver::on_sync() {
    events_.push_back({Seen::What::sync, 0, 0, 0, 0});
    ++stats_.num_sync_all_streams;
}

std::vector<Seen> CheckingObserver::take_events() {
    return std::exchange(events_, {});
}

std::vector<Seen::What> CheckingObserver::take_kinds() {
    std::vector<Seen::What> kinds;
    kinds.reserve(events_.size());
    for (const Seen& seen : take_events()) {
        kinds.push_back(seen.what);
    }
    return kinds;
}

void CheckingObserver::forget() {
    segments_.clear();
    in_use_.clear();
    change(stats_.oversize_allocations, -stats_.oversize_allocations.current);
    change(stats_.oversize_segments, -stats_.oversize_segments.current);
    for (StatByPool* stat :
         {&stats_.allocation, &stats_.segment, &stats_.active, &stats_.inactive_split,
          &stats_.allocated_bytes, &stats_.reserved_bytes, &stats_.active_bytes,
          &stats_.inactive_split_bytes, &stats_.requested_bytes}) {
        for (Stat* each : {&stat->all, &stat->small_pool, &stat->large_pool}) {
            change(*each, -each->current);
        }
    }
}

}  // namespace memlab::allocator::testing
