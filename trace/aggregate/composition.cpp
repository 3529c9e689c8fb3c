// The aggregator's figures that are computed on request: who held the memory, totals by kind.
#include <algorithm>
#include <tuple>

#include "trace/aggregate/aggregator.hpp"

namespace memlab::trace {

template <typename SiteOrPart>
Holder Aggregator::held_at_peak_by(const SiteOrPart& holder, std::uint32_t site) const {
    if (holder.peak_checked != devices_[sites_[site].device]->peak_number) {
        return {site, holder.live_count, holder.live_bytes};
    }
    return {site, holder.at_peak_count, holder.at_peak_bytes};
}

Holder Aggregator::held_at_peak(std::uint32_t index) const {
    return held_at_peak_by(sites_[index], index);
}

Holder Aggregator::held_at_peak(const NnModuleHolding& holding) const {
    return held_at_peak_by(holding, holding.site);
}

/// A garbage collector freed it. What is freed now was live at the latest peak if it is no younger
/// than that.
void Aggregator::apply_collected(const Live& live) {
    Collected& collected = collected_[live.site];
    ++collected.count;
    collected.bytes += live.size;
    const Site& site = sites_[live.site];
    const DeviceTotals& device = *devices_[site.device];
    if (live.serial > device.peak_serial || !counts_as_device_memory(site.kind)) {
        return;
    }
    if (collected.peak_number != device.peak_number) {
        collected.peak_number = device.peak_number;
        collected.at_peak_count = 0;
        collected.at_peak_bytes = 0;
    }
    ++collected.at_peak_count;
    collected.at_peak_bytes += live.size;
}

Collected Aggregator::collected(std::uint32_t index) const {
    const auto at = collected_.find(index);
    if (at == collected_.end()) {
        return {};
    }
    Collected collected = at->second;
    if (collected.peak_number != devices_[sites_[index].device]->peak_number) {
        collected.at_peak_count = 0;
        collected.at_peak_bytes = 0;
    }
    return collected;
}

std::vector<SiteLabel> Aggregator::holder_labels(const Composition& holders) const {
    return labels_.by_site([&](const SiteLabel& label) {
        return label.live_count != 0 &&
               std::any_of(holders.sites.begin(), holders.sites.end(),
                           [&](const Holder& holder) { return holder.site == label.site; });
    });
}

std::vector<StepTotals> Aggregator::steps() const {
    return steps_.totals([this](std::uint32_t site) { return sites_[site].live_bytes; },
                         [this](std::uint32_t path) { return scopes_.parent_path(path); });
}

std::vector<LiveTotals> Aggregator::largest_live(std::size_t limit) const {
    // An allocation and what was handed out of it may begin at one address and be as large.
    const auto larger = [](const LiveTotals& a, const LiveTotals& b) {
        return std::make_tuple(b.size, a.address, a.site) <
               std::make_tuple(a.size, b.address, b.site);
    };
    std::vector<LiveTotals> largest;  // a heap with the smallest at the front
    largest.reserve(limit + 1);
    live_.for_each([&](std::uint32_t, const Live& live) {
        if (live.pending) {
            return;
        }
        const bool named = live.has_label && !live.is_segment;
        largest.push_back({.address = live.address,
                           .site = live.site,
                           .thread = live.thread,
                           .label = named ? labels_.name_of(live.address) : 0,
                           .label_detail = named ? labels_.detail_of(live.address) : 0,
                           .time_ns = live.time_ns,
                           .requested = live.requested,
                           .size = live.size});
        std::push_heap(largest.begin(), largest.end(), larger);
        if (largest.size() > limit) {
            std::pop_heap(largest.begin(), largest.end(), larger);
            largest.pop_back();
        }
    });
    std::sort_heap(largest.begin(), largest.end(), larger);
    return largest;
}

void limit_sites(Composition& composition, std::size_t limit) {
    std::vector<Holder>& sites = composition.sites;
    std::sort(sites.begin(), sites.end(), [](const Holder& a, const Holder& b) {
        return a.bytes != b.bytes ? a.bytes > b.bytes : a.site < b.site;
    });
    for (std::size_t i = limit; i < sites.size(); ++i) {
        ++composition.other_sites;
        composition.other_count += sites[i].count;
        composition.other_bytes += sites[i].bytes;
    }
    sites.resize(std::min(limit, sites.size()));
}

template <typename Taken, typename Held>
Composition Aggregator::compose(std::uint32_t device, std::size_t limit, Taken taken,
                                Held held) const {
    Composition result;
    for (std::uint32_t index = 0; index < sites_.size(); ++index) {
        const Site& site = sites_[index];
        if (site.device != device || !taken(site.kind)) {
            continue;
        }
        const Holder holder = held(index);
        if (holder.count == 0) {
            continue;
        }
        result.count += holder.count;
        result.bytes += holder.bytes;
        result.sites.push_back(holder);
    }
    limit_sites(result, limit);
    return result;
}

Composition Aggregator::composition_at_peak(std::uint32_t device, std::size_t limit) const {
    return compose(device, limit, counts_as_device_memory,
                   [this](std::uint32_t index) { return held_at_peak(index); });
}

Composition Aggregator::composition_now(std::uint32_t device, std::size_t limit) const {
    return compose(device, limit, counts_as_device_memory,
                   [this](std::uint32_t index) { return held_now(index); });
}

Composition Aggregator::kind_at_peak(std::uint32_t device, MemoryKind kind,
                                     std::size_t limit) const {
    const KindCurve& curve = *devices_[device]->kind_curves.at(kind);
    return compose(
        device, limit, [kind](MemoryKind each) { return each == kind; },
        [&](std::uint32_t index) {
            const KindCurve::Held held =
                curve.at_peak(index, {sites_[index].live_count, sites_[index].live_bytes});
            return Holder{index, held.count, held.bytes};
        });
}

Composition Aggregator::kind_now(std::uint32_t device, MemoryKind kind, std::size_t limit) const {
    return compose(
        device, limit, [kind](MemoryKind each) { return each == kind; },
        [this](std::uint32_t index) { return held_now(index); });
}

}  // namespace memlab::trace
