// The program's own names for its memory (memlab_label, NVTX's heaps and regions), and what lives
// under each. The latest name of an allocation counts. O(1) an event; nothing while no allocation
// has a name. Memory: O(live allocations with a name), and so many names; later ones share a row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace memlab::trace {

struct LabelTotals {
    std::uint32_t name = 0;   ///< string id; 0: all names for which there was no row
    std::uint64_t count = 0;  ///< allocations that were given it
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;
    std::uint64_t peak_bytes = 0;  ///< the most that had it at once
};

class LabelFigures {
  public:
    static constexpr std::size_t max_names = 1024;

    /// False while ended() need not be told.
    bool any_live() const { return !of_address_.empty(); }

    /// The live allocation at `address` has this name from now on. May throw std::bad_alloc.
    void label(std::uint64_t address, std::uint32_t name, std::uint64_t bytes) {
        const std::uint32_t row = row_of(name);
        const auto [at, is_new] = of_address_.try_emplace(address, row);
        if (!is_new) {
            remove(at->second, bytes);
            at->second = row;
        }
        LabelTotals& totals = totals_[row];
        ++totals.count;
        ++totals.live_count;
        totals.live_bytes += bytes;
        totals.peak_bytes = std::max(totals.peak_bytes, totals.live_bytes);
    }

    /// The allocation at `address` is gone.
    void ended(std::uint64_t address, std::uint64_t bytes) {
        const auto at = of_address_.find(address);
        if (at != of_address_.end()) {
            remove(at->second, bytes);
            of_address_.erase(at);
        }
    }

    /// In order of first appearance.
    const std::vector<LabelTotals>& totals() const { return totals_; }

    /// The string id of the live allocation's name; 0: it has none.
    std::uint32_t name_of(std::uint64_t address) const {
        const auto at = of_address_.find(address);
        return at == of_address_.end() ? 0 : totals_[at->second].name;
    }

  private:
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
    void remove(std::uint32_t row, std::uint64_t bytes) {
        --totals_[row].live_count;
        totals_[row].live_bytes -= bytes;
    }

    std::vector<LabelTotals> totals_;
    std::unordered_map<std::uint32_t, std::uint32_t> rows_;        ///< by name
    std::unordered_map<std::uint64_t, std::uint32_t> of_address_;  ///< row
};

}  // namespace memlab::trace
