// Memory by label: the program's own names for its memory (memlab_label, NVTX's heaps and regions).
// The latest label of an allocation counts. O(1) per event, no cost while no live allocation has a
// label. Memory: O(live allocations with a label), plus bounded tables of names and of pairs of
// call site and name, large enough for each parameter, gradient and optimizer state of a model;
// names beyond the limit share a row, pairs beyond it count only under their name. A name's detail
// ("float32[512, 512]") is what all allocations that were given it hold.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <unordered_map>
#include <vector>

namespace memlab::trace {

struct LabelTotals {
    std::uint32_t name = 0;   ///< string id; 0: all names beyond max_names
    std::uint64_t count = 0;  ///< allocations that were given it
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;  ///< maximum of live_bytes
    std::uint32_t detail = 0;      ///< string id; 0: not known, or not the same for all

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.name, self.count, self.live_count, self.live_bytes, self.peak_bytes);
        if (archive.version() >= 8) {
            archive(self.detail);
        }
    }
};

/// The allocations of one call site with one label.
struct SiteLabel {
    std::uint32_t site = 0;
    std::uint32_t name = 0;   ///< as in LabelTotals
    std::uint64_t count = 0;  ///< allocations that were given it
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint32_t detail = 0;  ///< as in LabelTotals, of these

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.site, self.name, self.count, self.live_count, self.live_bytes);
        if (archive.version() >= 8) {
            archive(self.detail);
        }
    }
};

class LabelStats {
  public:
    static constexpr std::size_t max_names = 64 << 10;
    static constexpr std::size_t max_site_labels = 128 << 10;
    static constexpr std::size_t max_of_site = 16;  ///< that by_site() tells

    bool any_live() const { return !of_address_.empty(); }
    bool has(std::uint64_t address) const { return of_address_.contains(address); }

    /// Names the live allocation of `site` at `address`; `detail` is a string id, too, or 0. May
    /// throw std::bad_alloc.
    void label(std::uint64_t address, std::uint32_t name, std::uint64_t bytes, std::uint32_t site,
               std::uint32_t detail = 0) {
        const std::uint32_t row = row_of(name);
        const Named named{.row = row, .site_label = site_label_of(site, row), .detail = detail};
        const auto [at, is_new] = of_address_.try_emplace(address, named);
        if (!is_new) {
            remove(at->second, bytes);
            at->second = named;
        }
        LabelTotals& totals = totals_[row];
        note_detail(totals, detail);
        ++totals.count;
        ++totals.live_count;
        totals.live_bytes += bytes;
        totals.peak_bytes = std::max(totals.peak_bytes, totals.live_bytes);
        if (named.site_label != none) {
            SiteLabel& of_site = site_labels_[named.site_label];
            note_detail(of_site, detail);
            ++of_site.count;
            ++of_site.live_count;
            of_site.live_bytes += bytes;
        }
    }

    /// The allocation at `address`, which has a label, ended.
    void ended(std::uint64_t address, std::uint64_t bytes) {
        const auto at = of_address_.find(address);
        if (at != of_address_.end()) {
            remove(at->second, bytes);
            of_address_.erase(at);
        }
    }

    /// In order of first appearance.
    const std::vector<LabelTotals>& totals() const { return totals_; }

    /// Those that `taken(label)` says. By site; within a site by live bytes, then by count, largest
    /// first. Where a site has more than max_of_site, the last one has name 0 and the sum of all
    /// others. May throw std::bad_alloc.
    template <typename Taken>
    std::vector<SiteLabel> by_site(const Taken& taken) const {
        std::vector<SiteLabel> sorted;
        std::copy_if(site_labels_.begin(), site_labels_.end(), std::back_inserter(sorted), taken);
        std::stable_sort(sorted.begin(), sorted.end(), [](const SiteLabel& a, const SiteLabel& b) {
            return a.site != b.site               ? a.site < b.site
                   : a.live_bytes != b.live_bytes ? a.live_bytes > b.live_bytes
                                                  : a.count > b.count;
        });
        std::size_t kept = 0;
        std::size_t of_site = 0;
        for (const SiteLabel& label : sorted) {
            of_site = kept != 0 && sorted[kept - 1].site == label.site ? of_site + 1 : 1;
            if (of_site <= max_of_site) {
                sorted[kept++] = label;
                continue;
            }
            SiteLabel& others = sorted[kept - 1];
            others.name = others.detail = 0;
            others.count += label.count;
            others.live_count += label.live_count;
            others.live_bytes += label.live_bytes;
        }
        sorted.resize(kept);
        return sorted;
    }
    std::vector<SiteLabel> by_site() const {
        return by_site([](const SiteLabel&) { return true; });
    }

    /// The string id of the live allocation's name; 0: it has none.
    std::uint32_t name_of(std::uint64_t address) const {
        const auto at = of_address_.find(address);
        return at == of_address_.end() ? 0 : totals_[at->second.row].name;
    }
    /// The same of its detail.
    std::uint32_t detail_of(std::uint64_t address) const {
        const auto at = of_address_.find(address);
        return at == of_address_.end() ? 0 : at->second.detail;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.totals_, self.site_labels_, self.rows_, self.site_label_index_,
                self.of_address_);
    }
    /// Whether a restored state is consistent with `sites` call sites and `strings` strings.
    bool valid(std::size_t sites, std::size_t strings) const {
        const auto row_is_valid = [this](std::uint32_t row) { return row < totals_.size(); };
        const auto pair_is_valid = [this](std::uint32_t at) { return at < site_labels_.size(); };
        return totals_.size() <= max_names && site_labels_.size() <= max_site_labels &&
               std::all_of(totals_.begin(), totals_.end(),
                           [&](const LabelTotals& each) {
                               return each.name < strings && each.detail < strings;
                           }) &&
               std::all_of(site_labels_.begin(), site_labels_.end(),
                           [&](const SiteLabel& each) {
                               return each.site < sites && each.name < strings &&
                                      each.detail < strings;
                           }) &&
               std::all_of(rows_.begin(), rows_.end(),
                           [&](const auto& each) { return row_is_valid(each.second); }) &&
               std::all_of(site_label_index_.begin(), site_label_index_.end(),
                           [&](const auto& each) { return pair_is_valid(each.second); }) &&
               std::all_of(of_address_.begin(), of_address_.end(), [&](const auto& each) {
                   return row_is_valid(each.second.row) && each.second.detail < strings &&
                          (each.second.site_label == none || pair_is_valid(each.second.site_label));
               });
    }

  private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Named {
        std::uint32_t row = 0;
        std::uint32_t site_label = none;  ///< index; none: beyond max_site_labels
        std::uint32_t detail = 0;

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.row, self.site_label);
            if (archive.version() >= 8) {
                archive(self.detail);
            }
        }
    };

    /// One more allocation gets the name of `totals`.
    template <typename Totals>
    static void note_detail(Totals& totals, std::uint32_t detail) {
        if (totals.count == 0 && totals.name != 0) {
            totals.detail = detail;
        } else if (totals.detail != detail) {
            totals.detail = 0;
        }
    }
    std::uint32_t row_of(std::uint32_t name) {
        const auto known = rows_.find(name);
        if (known != rows_.end()) {
            return known->second;
        }
        if (totals_.size() == max_names) {
            return static_cast<std::uint32_t>(max_names - 1);
        }
        const auto row = static_cast<std::uint32_t>(totals_.size());
        const bool rest = totals_.size() == max_names - 1;
        rows_.emplace(name, row);
        totals_.push_back({.name = rest ? 0 : name});
        return row;
    }
    std::uint32_t site_label_of(std::uint32_t site, std::uint32_t row) {
        const std::uint64_t key = std::uint64_t{site} << 32U | row;
        const auto known = site_label_index_.find(key);
        if (known != site_label_index_.end()) {
            return known->second;
        }
        if (site_labels_.size() == max_site_labels) {
            return none;
        }
        const auto index = static_cast<std::uint32_t>(site_labels_.size());
        site_label_index_.emplace(key, index);
        site_labels_.push_back({.site = site, .name = totals_[row].name});
        return index;
    }
    void remove(const Named& named, std::uint64_t bytes) {
        --totals_[named.row].live_count;
        totals_[named.row].live_bytes -= bytes;
        if (named.site_label != none) {
            --site_labels_[named.site_label].live_count;
            site_labels_[named.site_label].live_bytes -= bytes;
        }
    }

    std::vector<LabelTotals> totals_;
    std::vector<SiteLabel> site_labels_;
    std::unordered_map<std::uint32_t, std::uint32_t> rows_;              ///< by name
    std::unordered_map<std::uint64_t, std::uint32_t> site_label_index_;  ///< by site, then row
    std::unordered_map<std::uint64_t, Named> of_address_;
};

}  // namespace memlab::trace
