// The curve of a kind of memory that the curves of its device do not include: managed memory, which
// migrates between GPU and host, pinned memory, which is the host's, and other processes' memory.
//
// Who held it at its peak is kept as for a device (aggregator.hpp), but beside the sites: such
// allocations are few, and those of device memory pay nothing for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "trace/aggregate/timeline.hpp"

namespace memlab::trace {

class KindCurve {
  public:
    /// Live memory of a site.
    struct Held {
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };

    /// The site, which holds `before`, gets `bytes` more. May throw std::bad_alloc.
    void rise(std::uint32_t site, Held before, std::uint64_t bytes, std::uint64_t now_ns) {
        keep(site, before);
        curve_.current += bytes;
        if (curve_.current > curve_.peak) {
            curve_.peak = curve_.current;
            curve_.peak_time_ns = now_ns;
            ++peak_number_;
        }
        timeline_.record(now_ns, {curve_.current});
    }
    /// The site, which holds `before`, loses `bytes`. May throw std::bad_alloc.
    void fall(std::uint32_t site, Held before, std::uint64_t bytes, std::uint64_t now_ns) {
        keep(site, before);
        curve_.current -= bytes;
        timeline_.record(now_ns, {curve_.current});
    }

    const Curve& curve() const { return curve_; }
    const TimelineOf<1>& timeline() const { return timeline_; }
    /// What the site, which holds `now`, held at the peak.
    Held at_peak(std::uint32_t site, Held now) const {
        const auto at = at_peak_.find(site);
        const std::uint64_t checked = at == at_peak_.end() ? 0 : at->second.peak_number;
        return checked != peak_number_ ? now : at == at_peak_.end() ? Held() : at->second.held;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.curve_, self.timeline_, self.peak_number_, self.at_peak_);
    }
    /// Whether a restored state is consistent.
    bool valid(std::uint64_t now_ns, std::size_t sites) const {
        return timeline_.valid(now_ns) && (at_peak_.empty() || at_peak_.rbegin()->first < sites);
    }

  private:
    /// What a site held at peak number `peak_number`.
    struct AtPeak {
        Held held;
        std::uint64_t peak_number = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.held.count, self.held.bytes, self.peak_number);
        }
    };

    /// Before the site's live memory changes: it has not since the latest peak.
    void keep(std::uint32_t site, Held before) {
        AtPeak& at_peak = at_peak_[site];
        if (at_peak.peak_number != peak_number_) {
            at_peak = {before, peak_number_};
        }
    }

    Curve curve_;
    TimelineOf<1> timeline_;
    std::uint64_t peak_number_ = 0;  ///< number of new maxima
    std::map<std::uint32_t, AtPeak> at_peak_;
};

}  // namespace memlab::trace
