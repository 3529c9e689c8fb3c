#include "trace/aggregate/intervals.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <new>
#include <utility>

#include "trace/aggregate/library_memory.hpp"

namespace memlab::trace {

Intervals::Interval* Intervals::find(std::uint64_t id) {
    for (const auto& interval : intervals_) {
        if (interval->id == id) {
            return interval.get();
        }
    }
    return nullptr;
}

bool Intervals::any_open() const {
    return std::any_of(intervals_.begin(), intervals_.end(),
                       [](const auto& interval) { return interval->open; });
}

/// Whether the interval counts what is allocated at this site.
bool Intervals::takes(const IntervalFilter& filter, std::uint32_t site) const {
    const Site& of = aggregate_.sites()[site];
    if (filter.kind ? of.kind != *filter.kind : !counts_as_device_memory(of.kind)) {
        return false;
    }
    if (!filter.gpu) {
        return true;
    }
    const DeviceInfo& device = aggregate_.devices()[of.device]->info;
    return (device.is_gpu() ? device.index : device.gpu) == *filter.gpu;
}

bool Intervals::is_of_library(std::uint32_t site) {
    if (site >= of_library_.size()) {
        of_library_.resize(aggregate_.sites().size());
    }
    std::optional<bool>& known = of_library_[site];
    if (!known) {
        known = is_taken_by_library(aggregate_, aggregate_.sites()[site]);
    }
    return *known;
}

std::uint64_t Intervals::level_of(const IntervalFilter& filter) {
    if (filter.takes_all()) {
        return aggregate_.total_allocated();
    }
    std::uint64_t level = 0;
    for (std::uint32_t index = 0; index < aggregate_.sites().size(); ++index) {
        level += takes(filter, index) ? held_by(site, index).bytes : 0;
    }
    return level;
}

void Intervals::observe() {
    aggregate_.set_observer(any_open() ? this : nullptr);
}

/// The state at this moment, from which allocated(), freed() and split() go on.
void Intervals::read_live() {
    for (SiteTable& segments : segments_) {
        segments.clear();
    }
    const auto& devices = aggregate_.devices();
    if (std::none_of(devices.begin(), devices.end(), [](const auto& device) {
            return device != nullptr && device->segment_bytes != 0;
        })) {
        return;
    }
    aggregate_.live().for_each([&](std::uint32_t, const Live& live) {
        if (live.is_segment && !live.pending) {
            cut(live);
        }
    });
}

bool Intervals::begin(std::uint64_t id, const IntervalFilter& filter) {
    if (incomplete() || intervals_.size() == max_intervals || find(id) != nullptr) {
        return false;
    }
    if (!any_open()) {
        read_live();
    }
    auto interval = std::make_unique<Interval>();
    interval->id = id;
    interval->filter = filter;
    interval->level = level_of(filter);
    IntervalTotals& totals = interval->totals;
    totals.begin_ns = totals.peak_time_ns = aggregate_.duration_ns();
    totals.begin_moment = totals.peak_moment = aggregate_.latest_serial();
    totals.begin_bytes = totals.peak_bytes = interval->level;
    interval->stretches.push_back({.highest = interval->level});
    intervals_.push_back(std::move(interval));
    observe();
    return true;
}

const IntervalTotals* Intervals::end(std::uint64_t id, std::size_t max_sites) {
    Interval* const interval = find(id);
    if (interval == nullptr || (interval->open && incomplete())) {
        return nullptr;
    }
    if (interval->open) {
        interval->totals.at_peak = composition(*interval, max_sites);
        interval->totals.nn_modules = nn_modules(*interval);
        interval->totals.end_ns = aggregate_.duration_ns();
        interval->totals.end_moment = aggregate_.latest_serial();
        interval->totals.end_bytes = interval->level;
        sum_up_libraries(*interval);
        interval->at_peak = {};
        interval->open = false;
        observe();
    }
    return &interval->totals;
}

void Intervals::forget(std::uint64_t id) {
    for (auto& interval : intervals_) {
        if (interval->id == id) {
            interval.swap(intervals_.back());
            intervals_.pop_back();
            break;
        }
    }
    observe();
}

void Intervals::cut(const Live& live) {
    segments_[site].add(live.site, 1, live.size);
    if (live.nn_modules != 0) {
        segments_[part].add(live.nn_modules - 1, 1, live.size);
    }
}

/// What it holds at this moment that is no segment.
SiteTable::Item Intervals::held_by(Of of, std::uint32_t index) {
    SiteTable::Item now{index, 0, 0};
    if (of == site) {
        const Site& held = aggregate_.sites()[index];
        now = {index, held.live_count, held.live_bytes};
    } else {
        const NnModuleHolding& held = aggregate_.nn_modules().holdings()[index];
        now = {index, held.live_count, held.live_bytes};
    }
    if (const SiteTable::Item* const segments = segments_[of].find(index)) {
        now.count -= segments->count;
        now.bytes -= segments->bytes;
    }
    return now;
}

SiteTable::Item Intervals::held_at_peak_by(Interval& interval, Of of, std::uint32_t index) {
    const SiteTable::Item* const kept = interval.at_peak[of].find(index);
    return kept == nullptr ? held_by(of, index) : *kept;
}

/// What it held before this change: `added` is in it already, or null.
void Intervals::keep(Interval& interval, Of of, std::uint32_t index, const Live* added) {
    if (interval.at_peak[of].find(index) != nullptr) {
        return;
    }
    const SiteTable::Item now = held_by(of, index);
    interval.at_peak[of].add(index, now.count - (added == nullptr ? 0 : 1),
                             now.bytes - (added == nullptr ? 0 : added->size));
}

/// It did not keep the block: the stretches before and behind that are one.
void Intervals::forget_block(Interval& interval, const Live& live) {
    std::vector<Stretch>& all = interval.stretches;
    const auto of =
        std::lower_bound(all.begin(), all.end(), live.serial,
                         [](const Stretch& each, auto serial) { return each.serial < serial; });
    if (of != all.end() && of->serial == live.serial && of != all.begin()) {
        std::prev(of)->highest = std::max(std::prev(of)->highest, of->highest);
        all.erase(of);
    }
}

void Intervals::sum_up_libraries(Interval& interval) {
    IntervalTotals& totals = interval.totals;
    for (const Stretch& each : interval.stretches) {
        totals.library_bytes += each.size;
        totals.own_growth_bytes = std::max(
            totals.own_growth_bytes,
            each.highest - std::min(each.highest, totals.library_bytes + totals.begin_bytes));
    }
    totals.library_count = interval.stretches.size() - 1;
    interval.stretches = {};
}

void Intervals::rise(const Live& live) {
    for (const auto& interval : intervals_) {
        if (!interval->open || !takes(interval->filter, live.site)) {
            continue;
        }
        interval->level += live.size;
        IntervalTotals& totals = interval->totals;
        ++totals.allocated_count;
        totals.allocated_bytes += live.size;
        if (is_of_library(live.site)) {
            interval->stretches.push_back({live.serial, live.size, interval->level});
        }
        std::uint64_t& highest = interval->stretches.back().highest;
        highest = std::max(highest, interval->level);
        if (interval->level > totals.peak_bytes) {
            totals.peak_bytes = interval->level;
            totals.peak_time_ns = aggregate_.duration_ns();
            totals.peak_moment = aggregate_.latest_serial();
            for (SiteTable& at_peak : interval->at_peak) {
                at_peak.clear();
            }
            continue;
        }
        keep(*interval, site, live.site, &live);
        if (live.nn_modules != 0) {
            keep(*interval, part, live.nn_modules - 1, &live);
        }
    }
}

void Intervals::fall(const Live& live) {
    for (const auto& interval : intervals_) {
        if (!interval->open || !takes(interval->filter, live.site)) {
            continue;
        }
        interval->level -= live.size;
        if (is_of_library(live.site)) {
            forget_block(*interval, live);
        }
        ++interval->totals.freed_count;
        interval->totals.freed_bytes += live.size;
        keep(*interval, site, live.site, nullptr);
        if (live.nn_modules != 0) {
            keep(*interval, part, live.nn_modules - 1, nullptr);
        }
    }
}

Composition Intervals::composition(Interval& interval, std::size_t max_sites) {
    Composition result;
    const std::vector<Site>& sites = aggregate_.sites();
    for (std::uint32_t index = 0; index < sites.size(); ++index) {
        if (!takes(interval.filter, index)) {
            continue;
        }
        const SiteTable::Item held = held_at_peak_by(interval, site, index);
        result.count += held.count;
        result.bytes += held.bytes;
        if (held.count != 0) {
            result.sites.push_back({index, held.count, held.bytes});
        }
    }
    limit_sites(result, max_sites);
    return result;
}

std::vector<NnModuleHeld> Intervals::nn_modules(Interval& interval) {
    const NnModuleStats& stats = aggregate_.nn_modules();
    std::map<std::uint32_t, NnModuleHeld> by_number;
    for (std::uint32_t index = 0; index < stats.holdings().size(); ++index) {
        const NnModuleHolding& holding = stats.holdings()[index];
        if (!takes(interval.filter, holding.site)) {
            continue;
        }
        const SiteTable::Item item = held_at_peak_by(interval, part, index);
        if (item.count != 0) {
            const std::uint32_t number = stats.holders()[holding.holder - 1].nn_module;
            NnModuleHeld& held = by_number.try_emplace(number, NnModuleHeld{number}).first->second;
            held.count += item.count;
            held.bytes += item.bytes;
        }
    }
    std::vector<NnModuleHeld> result;
    result.reserve(by_number.size());
    for (const auto& [number, held] : by_number) {
        result.push_back(held);
    }
    std::stable_sort(
        result.begin(), result.end(),
        [](const NnModuleHeld& a, const NnModuleHeld& b) { return a.bytes > b.bytes; });
    return result;
}

/// Without host memory the figures would be wrong: all intervals are dropped.
template <typename Work>
void Intervals::guarded(const Work& work) {
    try {
        work();
    } catch (const std::bad_alloc&) {
        intervals_.clear();
        observe();
    }
}

void Intervals::allocated(std::uint32_t /*slot*/, const Live& live, const Event& /*by*/) {
    guarded([&] {
        if (live.is_segment) {
            cut(live);
        } else {
            rise(live);
        }
    });
}

void Intervals::freed(std::uint32_t /*slot*/, const Live& live, const LifeEnd& /*end*/) {
    guarded([&] {
        if (!live.is_segment) {
            fall(live);
            return;
        }
        for (const Of of : {site, part}) {
            const std::uint32_t index = of == site ? live.site : live.nn_modules - 1;
            if (SiteTable::Item* const segments = segments_[of].find(index)) {
                --segments->count;
                segments->bytes -= live.size;
            }
        }
    });
}

/// What was there at an interval's peak was its at the peak.
void Intervals::moved(std::uint32_t /*slot*/, const Live& live, std::uint32_t to) {
    guarded([&] {
        for (const auto& interval : intervals_) {
            if (!interval->open || !takes(interval->filter, live.site)) {
                continue;
            }
            const bool at_peak = live.serial <= interval->totals.peak_moment;
            if (live.nn_modules != 0) {
                keep(*interval, part, live.nn_modules - 1, nullptr);
                SiteTable::Item& from = *interval->at_peak[part].find(live.nn_modules - 1);
                from.count -= at_peak ? 1 : 0;
                from.bytes -= at_peak ? live.size : 0;
            }
            if (to != 0) {
                keep(*interval, part, to - 1, nullptr);
                interval->at_peak[part].add(to - 1, at_peak ? 1 : 0, at_peak ? live.size : 0);
            }
        }
    });
}

void Intervals::split(std::uint32_t /*slot*/, const Live& live) {
    guarded([&] {
        fall(live);
        cut(live);
    });
}

}  // namespace memlab::trace
