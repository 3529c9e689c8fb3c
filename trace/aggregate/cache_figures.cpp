// Figures of this moment: PyTorch's cache's statistics, who holds what it handed out, and what was
// allocated between moments before.
#include <algorithm>
#include <string_view>

#include "trace/aggregate/intervals.hpp"
#include "trace/aggregate/memory_stat_keys.hpp"

namespace memlab::trace {

/// Null: PyTorch has handed out nothing on that GPU, or figures would be wrong.
const DeviceTotals* Intervals::pytorch_on(int gpu) const {
    for (const auto& device : aggregate_.devices()) {
        if (gpu >= 0 && device != nullptr && !device->info.is_gpu() &&
            device->info.gpu == static_cast<std::uint32_t>(gpu) &&
            device->info.allocator == DeviceInfo::pytorch) {
            return incomplete() ? nullptr : device.get();
        }
    }
    return nullptr;
}

std::size_t Intervals::take_cache_stats(int gpu, std::span<std::uint64_t> values) {
    const DeviceTotals* const cache = pytorch_on(gpu);
    if (cache == nullptr) {
        return 0;
    }
    std::size_t count = 0;
    visit_memory_stats(
        cache->pool.stats,
        [&](std::string_view, std::string_view, std::string_view, const std::uint64_t& value) {
            if (count < values.size()) {
                values[count] = value;
            }
            ++count;
        },
        &Stat::recent_peak);
    aggregate_.restart_recent_peaks(cache->info.index);
    return count;
}

/// Of the live allocations for which taken(live), as an interval in which nothing happens.
template <typename Taken>
IntervalTotals Intervals::live_now(std::size_t max_sites, const Taken& taken) const {
    SiteTable by_site;
    IntervalTotals totals;
    Composition& held = totals.at_peak;
    aggregate_.live().for_each([&](std::uint32_t, const Live& live) {
        if (!live.pending && !live.is_segment && taken(live)) {
            by_site.add(live.site, 1, live.size);
            ++held.count;
            held.bytes += live.size;
        }
    });
    held.sites.reserve(by_site.items().size());
    for (const SiteTable::Item& item : by_site.items()) {
        held.sites.push_back({item.site, item.count, item.bytes});
    }
    limit_sites(held, max_sites);
    totals.begin_bytes = totals.end_bytes = totals.peak_bytes = held.bytes;
    totals.begin_ns = totals.end_ns = totals.peak_time_ns = aggregate_.duration_ns();
    totals.begin_moment = totals.end_moment = totals.peak_moment = aggregate_.latest_serial();
    return totals;
}

std::optional<IntervalTotals> Intervals::held_by_cache(int gpu,
                                                       std::span<const std::uint64_t> known,
                                                       std::size_t max_sites) const {
    const DeviceTotals* const cache = pytorch_on(gpu);
    if (cache == nullptr) {
        return std::nullopt;
    }
    std::vector<std::uint64_t> sorted(known.begin(), known.end());
    std::sort(sorted.begin(), sorted.end());
    return live_now(max_sites, [&](const Live& live) {
        return aggregate_.sites()[live.site].device == cache->info.index &&
               !std::binary_search(sorted.begin(), sorted.end(), live.address);
    });
}

std::optional<IntervalTotals> Intervals::made_between(std::span<const std::uint64_t> moments,
                                                      std::size_t max_sites) const {
    if (incomplete()) {
        return std::nullopt;
    }
    return live_now(max_sites, [&](const Live& live) {
        const auto end = std::lower_bound(moments.begin(), moments.end(), live.serial);
        return end != moments.end() && (end - moments.begin()) % 2 == 1 &&
               counts_as_device_memory(aggregate_.sites()[live.site].kind);
    });
}

}  // namespace memlab::trace
