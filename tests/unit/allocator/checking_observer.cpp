#include "tests/unit/allocator/checking_observer.hpp"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <utility>

#include "allocator/stat_counters.hpp"

namespace memlab::allocator::testing {

namespace {

void change(Stat& stat, std::int64_t by) {
    stat.current += by;
    stat.peak = std::max(stat.peak, stat.current);
    (by > 0 ? stat.allocated : stat.freed) += by > 0 ? by : -by;
}

void change(StatByPool& stat, bool small, std::int64_t by) {
    change(stat.all, by);
    change(stat.of(small), by);
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
    for (const auto* all : {&segments_, &ranges_}) {
        if (const auto found = all->find(segment); found != all->end()) {
            return found->second.small;
        }
    }
    return false;
}

/// The unused gaps in a contiguous run of memory.
void CheckingObserver::add_gaps(Gap run, std::vector<Gap>& found) const {
    for (auto it = in_use_.lower_bound(run.begin); it != in_use_.end() && it->first < run.end;
         ++it) {
        if (it->first > run.begin) {
            Gap gap = run;
            gap.end = it->first;
            found.push_back(gap);
        }
        run.begin = it->first + it->second.size;
    }
    if (run.begin < run.end) {
        found.push_back(run);
    }
}

std::vector<CheckingObserver::Gap> CheckingObserver::gaps(bool small) const {
    std::vector<Gap> found;
    for (const auto& [base, segment] : segments_) {
        if (segment.small == small) {
            add_gaps({base, base + segment.size, base, segment.size, false}, found);
        }
    }
    for (const auto& [base, range] : ranges_) {
        if (range.small != small) {
            continue;
        }
        const Address end = base + range.size;
        for (auto page = pages_.lower_bound(base); page != pages_.end() && *page < end;) {
            Gap run{*page, *page, base, range.size, true};
            while (page != pages_.end() && *page == run.end && *page < end) {
                run.end += page_bytes;
                ++page;
            }
            // A block that began before the run would need memory before it.
            add_gaps(run, found);
        }
    }
    std::sort(found.begin(), found.end(),
              [](const Gap& a, const Gap& b) { return a.begin < b.begin; });
    return found;
}

bool CheckingObserver::has_pages(Address begin, Address end) const {
    for (Address page = begin / page_bytes * page_bytes; page < end; page += page_bytes) {
        if (pages_.count(page) == 0) {
            return false;
        }
    }
    return true;
}

CheckingObserver::Fit CheckingObserver::best_fit(const std::vector<Gap>& all,
                                                 std::uint64_t size) const {
    const std::uint64_t unit =
        size >= options_.coarse_alignment ? options_.coarse_alignment : options_.rounding;
    Fit best;
    std::uint64_t best_room = 0;
    for (const Gap& gap : all) {
        const Address begin = gap.segment + (gap.begin - gap.segment + unit - 1) / unit * unit;
        if (begin + size > gap.end) {
            continue;
        }
        const std::uint64_t room = gap.end - begin;
        if (best.gap == nullptr || room < best_room) {
            best = {&gap, begin};
            best_room = room;
        }
    }
    return best;
}

std::uint64_t CheckingObserver::largest_free() const {
    std::uint64_t largest = 0;
    for (const Gap& gap : gaps(true)) {
        largest = std::max(largest, gap.end - gap.begin);
    }
    for (const Gap& gap : gaps(false)) {
        const std::uint64_t unit = options_.coarse_alignment;
        const Address begin = gap.segment + (gap.begin - gap.segment + unit - 1) / unit * unit;
        if (begin + unit <= gap.end) {
            largest = std::max(largest, gap.end - begin);
        }
    }
    return largest;
}

/// Determines the range of newly mapped pages from the allocation that they were mapped for.
void CheckingObserver::accept_fresh_pages(const BlockInfo& block) {
    const std::uint64_t size = expected_size(block.requested);
    const bool small = packs_all() && size <= options_.small_size;
    const Seen fresh = std::exchange(fresh_pages_, {});
    if (packs_all() && best_fit(gaps(small), size).gap != nullptr) {
        problem("mapped pages although a gap fits", fresh.address);
    }
    if (fresh.address < block.segment ||
        fresh.address + fresh.size > block.segment + block.segment_size) {
        problem("mapped pages in another range", fresh.address);
    }
    if (fresh.size >= size + page_bytes) {
        problem("mapped more pages than are needed", fresh.address);
    }
    const auto first = pages_.lower_bound(block.segment);
    const bool empty = first == pages_.end() || *first >= block.segment + block.segment_size;
    ranges_[block.segment] = {block.segment_size, small};
    for (Address page = fresh.address; page < fresh.address + fresh.size; page += page_bytes) {
        pages_.insert(page);
    }
    const std::int64_t active_peak = stats_.active_bytes.all.peak;
    const std::int64_t mark =
        std::max(stats_.reserved_bytes.all.peak, active_peak + active_peak / 24);
    ++stats_.num_device_alloc;
    if (empty) {
        change(stats_.segment, small, 1);
    }
    change(stats_.reserved_bytes, small, bytes(fresh.size));
    const auto touches = [&fresh](const Gap& gap) {
        return gap.begin < fresh.address + fresh.size && gap.end > fresh.address;
    };
    const std::vector<Gap> grown = gaps(small);
    const Fit fit = best_fit(grown, size);
    if (packs_all() && (fit.gap == nullptr || !touches(*fit.gap))) {
        problem("mapped pages that do not help", fresh.address);
    }
    if (!packs_all() || stats_.reserved_bytes.all.current <= mark) {
        return;
    }
    for (const bool half : {true, false}) {
        for (const Gap& gap : gaps(half)) {
            const auto chunk = chunks_.lower_bound(gap.begin);
            if (gap.expandable && chunk != chunks_.end() &&
                chunk->first + chunk->second <= gap.end && !touches(gap)) {
                problem("passed its mark with a free chunk", chunk->first);
            }
        }
    }
}

/// Computed naively, step by step.
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
    const bool small = packs_all() && size <= options_.small_size;
    const std::vector<Gap> all = gaps(small);
    const Fit fit = best_fit(all, size);
    const Gap* best = fit.gap;
    Address best_begin = fit.begin;
    // Oversize blocks are reserved for large requests: then only a fresh one may be used.
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
    const bool cut = small || options_.expandable || (tail > options_.small_size && !oversize) ||
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
        if (!gap.expandable && gap.end - gap.begin != gap.segment_size) {
            ++count;
            total += bytes(gap.end - gap.begin);
        }
    }
    const auto now = [small](const StatByPool& stat) { return stat.of(small).current; };
    change(stats_.inactive_split, small, count - now(stats_.inactive_split));
    change(stats_.inactive_split_bytes, small, total - now(stats_.inactive_split_bytes));
}

void CheckingObserver::on_alloc(const BlockInfo& block, Tag tag) {
    events_.push_back({Seen::What::alloc, block.address, block.size, block.requested, tag});
    if (fresh_pages_.size != 0) {
        accept_fresh_pages(block);
    }
    const bool in_range = ranges_.count(block.segment) != 0;
    const auto& all = in_range ? ranges_ : segments_;
    const auto segment = all.find(block.segment);
    if (segment == all.end() || segment->second.size != block.segment_size ||
        block.address < block.segment ||
        block.address + block.size > block.segment + block.segment_size) {
        problem("allocated outside of its segment", block.address);
        return;
    }
    if (in_range && !has_pages(block.address, block.address + block.size)) {
        problem("allocated where there is no memory", block.address);
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
    if (packs_all()) {
        expect_placement(block);
    }
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
    fresh_pages_ = events_.back();
    if (!options_.expandable || address % page_bytes != 0 || size % page_bytes != 0 || size == 0) {
        problem("mapped what are not pages of a range", address);
    }
    for (Address page = address; page < address + size; page += page_bytes) {
        if (pages_.count(page) != 0) {
            problem("mapped a page that has memory", page);
        }
    }
    for (std::uint64_t done = 0; done < size; done += chunk_bytes(size)) {
        chunks_[address + done] = std::min(chunk_bytes(size), size - done);
    }
}

void CheckingObserver::on_segment_unmap(Address address, std::uint64_t size) {
    events_.push_back({Seen::What::segment_unmap, address, size, 0, 0});
    auto range = ranges_.upper_bound(address);
    if (range == ranges_.begin() || size == 0 || !has_pages(address, address + size)) {
        problem("unmapped pages that have no memory", address);
        return;
    }
    const auto& [base, seen] = *--range;
    const auto used = in_use_.lower_bound(address);
    if ((used != in_use_.end() && used->first < address + size) ||
        (used != in_use_.begin() &&
         std::prev(used)->first + std::prev(used)->second.size > address)) {
        problem("unmapped pages in use", address);
    }
    const auto first = chunks_.lower_bound(address);
    const auto end = chunks_.lower_bound(address + size);
    if (first == end || first->first != address ||
        std::prev(end)->first + std::prev(end)->second != address + size) {
        problem("unmapped what are not whole chunks", address);
    }
    chunks_.erase(first, end);
    pages_.erase(pages_.lower_bound(address), pages_.lower_bound(address + size));
    ++stats_.num_device_free;
    change(stats_.reserved_bytes, seen.small, -bytes(size));
    const auto left = pages_.lower_bound(base);
    if (left == pages_.end() || *left >= base + seen.size) {
        change(stats_.segment, seen.small, -1);
    }
}

void CheckingObserver::on_reclaim(std::uint64_t requested, Tag tag) {
    events_.push_back({Seen::What::reclaim, 0, 0, requested, tag});
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

bool CheckingObserver::agrees(PoolStats stats) const {
    PoolStats seen = stats_;
    stats.num_ooms = 0;
    seen.largest_free = packs_all() ? bytes(largest_free()) : stats.largest_free;
    for (PoolStats* each : {&stats, &seen}) {
        for (const CountedStat& counted : counted_stats) {
            StatByPool& by_pool = each->*counted.stat;
            by_pool = packs_all() ? by_pool : StatByPool{by_pool.all, {}, {}};
        }
    }
    return stats == seen;
}

void CheckingObserver::forget() {
    segments_.clear();
    ranges_.clear();
    pages_.clear();
    chunks_.clear();
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
