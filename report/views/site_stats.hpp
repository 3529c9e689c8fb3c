// The memory use of one or several call sites: the columns of all views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "model/report.hpp"

namespace memlab::report {

/// Sums saturate, since the figures of a file are not trusted.
struct SiteStats {
    /// Live at the device's allocated peak; 0 for kinds that the curves do not include.
    std::uint64_t peak_count = 0;
    std::uint64_t peak_bytes = 0;
    std::uint64_t count = 0;  ///< allocated over the whole run
    std::uint64_t bytes = 0;
    std::uint64_t live_count = 0;  ///< live at the end
    std::uint64_t live_bytes = 0;
    std::uint64_t temporaries = 0;  ///< freed before their thread allocated anything else
    bool held_only = false;         ///< of nn.Modules: the figures of the whole run are not known

    void add(const SiteStats& other);

    template <typename Self, typename Visitor>
    static void fields(Self& self, Visitor& visit) {
        visit.number({"at_peak_bytes", "live at the device's allocated peak"}, self.peak_bytes);
        visit.number({"at_peak_count", "how many"}, self.peak_count);
        const auto known = [&self](std::uint64_t figure) {
            return self.held_only ? std::nullopt : std::optional(figure);
        };
        visit.number_or_null(
            {"bytes", "allocated over the whole run; null, as the next, of nn.Modules"},
            known(self.bytes));
        visit.number_or_null({"count", "how many"}, known(self.count));
        visit.number({"live_bytes", "live at the end"}, self.live_bytes);
        visit.number({"live_count", "how many"}, self.live_count);
        visit.number_or_null(
            {"temporaries",
             "freed before their thread allocated anything else; null of nn.Modules"},
            known(self.temporaries));
    }
    bool operator==(const SiteStats&) const = default;
};

SiteStats site_stats(const model::Site& site);

/// The sites of a device, of all kinds of memory, or those of a kind that has a curve of its own,
/// whose peak then is that curve's.
class ViewedMemory {
  public:
    explicit ViewedMemory(const model::Device& device) : device_(&device) {}
    /// `kind`: one of device.kind_curves.
    ViewedMemory(const model::Device& device, const std::string& kind);

    const model::Device& device() const { return *device_; }
    const std::string& kind() const { return kind_; }  ///< empty: all
    bool has(const model::Site& site) const {
        return site.device == device_->index && (kind_.empty() || site.kind == kind_);
    }
    /// `index` is that of the site in Report::sites.
    SiteStats stats(const model::Site& site, std::size_t index) const;
    /// The sum over its sites.
    SiteStats stats(const model::Report& report) const;

  private:
    const model::Device* device_;
    std::string kind_;
    std::map<std::size_t, model::Holders::Share> at_peak_;  ///< by site
};

/// The sort order of views.
enum class Order { peak, bytes, count, live, temporaries };

/// What a view by that order shows, a table each: the used devices, of `device` if that is given,
/// and by peak the kinds of memory that have a peak of their own and are worth telling, or of which
/// `taken` chose sites from among others.
std::vector<ViewedMemory> viewed_memory(const model::Report& report, const std::vector<bool>& taken,
                                        Order order, std::optional<std::uint64_t> device);

/// "peak", "bytes", "count", "live", "temporaries": in the order of the enumerators.
const std::vector<std::string>& order_names();

/// `name` must be one of order_names().
Order parse_order(const std::string& name);

/// The figure that `order` sorts by.
inline std::uint64_t sort_value(const SiteStats& stats, Order order) {
    switch (order) {
        case Order::peak:
            return stats.peak_bytes;
        case Order::bytes:
            return stats.bytes;
        case Order::count:
            return stats.count;
        case Order::live:
            return stats.live_bytes;
        case Order::temporaries:
            return stats.temporaries;
    }
    return 0;
}

/// {at_peak_bytes, at_peak_count, bytes, count, live_bytes, live_count, temporaries}.
nlohmann::ordered_json site_stats_json(const SiteStats& stats);

/// part / whole; 0 if `whole` is 0.
double fraction(std::uint64_t part, std::uint64_t whole);

}  // namespace memlab::report
