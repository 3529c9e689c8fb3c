#include "report/summary/summary_filter.hpp"

#include <algorithm>
#include <map>

namespace memlab::report {

namespace {

void filter_holders(HoldersSummary& summary, const model::Holders& holders,
                    const model::Report& report, const std::vector<bool>& taken) {
    std::map<std::size_t, model::Holders::Share> shares;
    for (const model::Holders::Share& share : holders.sites) {
        shares.emplace(share.site, share);
    }
    for (PlaceShare& place : summary.places) {
        // A place may be on call stacks that match and on others that do not.
        std::erase_if(place.sites, [&](std::size_t site) { return !taken.at(site); });
        place.count = 0;
        place.bytes = 0;
        std::vector<std::size_t> stacks;
        for (const std::size_t site : place.sites) {
            place.count += shares.at(site).count;
            place.bytes += shares.at(site).bytes;
            stacks.push_back(report.sites.at(site).stack);
        }
        std::erase_if(place.stacks, [&](std::size_t stack) {
            return std::find(stacks.begin(), stacks.end(), stack) == stacks.end();
        });
    }
    std::erase_if(summary.places, [](const PlaceShare& place) { return place.sites.empty(); });
    std::stable_sort(summary.places.begin(), summary.places.end(),
                     [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    summary.unnamed_count = 0;
    summary.unnamed_bytes = 0;
}

}  // namespace

void filter_summary(Summary& summary, const std::vector<bool>& taken) {
    const model::Report& report = *summary.report;
    for (DeviceSummary& device : summary.devices) {
        filter_holders(device.at_peak, device.device->at_peak, report, taken);
        device.proposal.reset();  // it was of all
        filter_holders(device.live, device.device->live, report, taken);
        filter_holders(device.still_allocated, still_allocated(*device.device, report), report,
                       taken);
        for (KindSummary& kind : device.kinds) {
            filter_holders(kind.at_peak, kind.curve->at_peak, report, taken);
        }
    }
    for (OomSummary& oom : summary.ooms) {
        filter_holders(oom.holders, oom.oom->holders, report, taken);
    }
}

void order_by_count(Summary& summary) {
    const auto order = [](HoldersSummary& holders) {
        std::stable_sort(holders.places.begin(), holders.places.end(),
                         [](const auto& a, const auto& b) { return a.count > b.count; });
    };
    for (DeviceSummary& device : summary.devices) {
        order(device.at_peak);
        order(device.live);
        order(device.still_allocated);
        for (KindSummary& kind : device.kinds) {
            order(kind.at_peak);
        }
    }
    for (OomSummary& oom : summary.ooms) {
        order(oom.holders);
    }
}

}  // namespace memlab::report
