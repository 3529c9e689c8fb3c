#include "trace/aggregate/intervals.hpp"

#include <algorithm>
#include <new>
#include <utility>

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

void Intervals::observe() {
    aggregate_.set_observer(any_open() ? this : nullptr);
}

/// The state at this moment, from which allocated(), freed() and split() go on.
void Intervals::read_live() {
    level_ = aggregate_.total_allocated();
    segments_.clear();
    const auto& devices = aggregate_.devices();
    if (std::none_of(devices.begin(), devices.end(), [](const auto& device) {
            return device != nullptr && device->segment_bytes != 0;
        })) {
        return;
    }
    aggregate_.live().for_each([&](std::uint32_t, const Live& live) {
        if (live.is_segment && !live.pending) {
            segments_.add(live.site, 1, live.size);
        }
    });
}

bool Intervals::begin(std::uint64_t id) {
    if (incomplete() || intervals_.size() == max_intervals || find(id) != nullptr) {
        return false;
    }
    if (!any_open()) {
        read_live();
    }
    auto interval = std::make_unique<Interval>();
    interval->id = id;
    IntervalTotals& totals = interval->totals;
    totals.begin_ns = totals.peak_time_ns = aggregate_.duration_ns();
    totals.begin_bytes = totals.peak_bytes = level_;
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
        interval->totals.end_ns = aggregate_.duration_ns();
        interval->totals.end_bytes = level_;
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

/// What the site holds at this moment that is no segment.
SiteTable::Item Intervals::held_by(std::uint32_t site) {
    const Site& now = aggregate_.sites()[site];
    const SiteTable::Item* const cut = segments_.find(site);
    return {site, now.live_count - (cut == nullptr ? 0 : cut->count),
            now.live_bytes - (cut == nullptr ? 0 : cut->bytes)};
}

void Intervals::rise(std::uint32_t site, std::uint64_t bytes) {
    const SiteTable::Item now = held_by(site);
    level_ += bytes;
    for (const auto& interval : intervals_) {
        if (!interval->open) {
            continue;
        }
        IntervalTotals& totals = interval->totals;
        ++totals.allocated_count;
        totals.allocated_bytes += bytes;
        if (level_ > totals.peak_bytes) {
            totals.peak_bytes = level_;
            totals.peak_time_ns = aggregate_.duration_ns();
            interval->at_peak.clear();
        } else if (interval->at_peak.find(site) == nullptr) {
            interval->at_peak.add(site, now.count - 1, now.bytes - bytes);
        }
    }
}

void Intervals::fall(std::uint32_t site, std::uint64_t bytes) {
    const SiteTable::Item before = held_by(site);
    level_ -= bytes;
    for (const auto& interval : intervals_) {
        if (!interval->open) {
            continue;
        }
        ++interval->totals.freed_count;
        interval->totals.freed_bytes += bytes;
        if (interval->at_peak.find(site) == nullptr) {
            interval->at_peak.add(site, before.count, before.bytes);
        }
    }
}

Composition Intervals::composition(Interval& interval, std::size_t max_sites) {
    Composition result;
    const std::vector<Site>& sites = aggregate_.sites();
    for (std::uint32_t index = 0; index < sites.size(); ++index) {
        if (!counts_as_device_memory(sites[index].kind)) {
            continue;
        }
        const SiteTable::Item* const kept = interval.at_peak.find(index);
        const SiteTable::Item held = kept == nullptr ? held_by(index) : *kept;
        result.count += held.count;
        result.bytes += held.bytes;
        if (held.count != 0) {
            result.sites.push_back({index, held.count, held.bytes});
        }
    }
    limit_sites(result, max_sites);
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
    if (!counts_as_device_memory(aggregate_.sites()[live.site].kind)) {
        return;
    }
    guarded([&] {
        if (live.is_segment) {
            segments_.add(live.site, 1, live.size);
        } else {
            rise(live.site, live.size);
        }
    });
}

void Intervals::freed(std::uint32_t /*slot*/, const Live& live, const LifeEnd& /*end*/) {
    if (!counts_as_device_memory(aggregate_.sites()[live.site].kind)) {
        return;
    }
    guarded([&] {
        if (!live.is_segment) {
            fall(live.site, live.size);
        } else if (SiteTable::Item* const cut = segments_.find(live.site)) {
            --cut->count;
            cut->bytes -= live.size;
        }
    });
}

void Intervals::split(std::uint32_t /*slot*/, const Live& live) {
    guarded([&] {
        fall(live.site, live.size);
        segments_.add(live.site, 1, live.size);
    });
}

}  // namespace memlab::trace
