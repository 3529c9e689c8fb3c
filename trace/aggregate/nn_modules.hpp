// The memory of PyTorch's nn.Modules: by the stack of their calls that allocated it, and call site.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trace/aggregate/totals.hpp"
#include "trace/hash_index.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

/// What the calls of one stack of nn.Modules allocated at one call site.
struct NnModuleHolding {
    std::uint32_t stack = 0;  ///< NnModuleStackDef::id
    std::uint32_t site = 0;
    std::uint64_t count = 0;
    std::uint64_t bytes = 0;
    std::uint64_t live_count = 0;
    std::uint64_t live_bytes = 0;

    // As Site has them: see keep_peak().
    std::uint64_t at_peak_count = 0;
    std::uint64_t at_peak_bytes = 0;
    std::uint64_t peak_checked = 0;

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.stack, self.site, self.count, self.bytes, self.live_count, self.live_bytes,
                self.at_peak_count, self.at_peak_bytes, self.peak_checked);
    }
};

/// Thread-safety: none. What adds may throw std::bad_alloc.
class NnModuleStats {
  public:
    void on(const NnModuleStackDef& record) { stacks_.push_back(record); }
    void on(const NnModuleName& record) { names_[record.nn_module] = record; }

    /// By id - 1.
    const std::vector<NnModuleStackDef>& stacks() const { return stacks_; }
    /// By number.
    const std::map<std::uint32_t, NnModuleName>& names() const { return names_; }
    /// In order of first appearance.
    const std::vector<NnModuleHolding>& holdings() const { return holdings_; }

    // `peak_number`: of the site's device, before the change.
    /// The holding's number, from 1.
    std::uint32_t allocated(std::uint32_t stack, std::uint32_t site, std::uint64_t size,
                            std::uint64_t peak_number) {
        const std::uint32_t index = find_or_add(stack, site);
        NnModuleHolding& holding = holdings_[index];
        keep_peak(holding, peak_number);
        ++holding.count;
        ++holding.live_count;
        holding.bytes += size;
        holding.live_bytes += size;
        return index + 1;
    }
    void freed(std::uint32_t number, std::uint64_t size, std::uint64_t peak_number) {
        NnModuleHolding& holding = holdings_[number - 1];
        keep_peak(holding, peak_number);
        --holding.live_count;
        holding.live_bytes -= size;
    }

    /// Whether the numbers in a restored state are of things that there are; makes the index.
    bool restored(std::size_t sites) {
        for (std::uint32_t index = 0; index < holdings_.size(); ++index) {
            const NnModuleHolding& holding = holdings_[index];
            if (holding.stack == 0 || holding.stack > stacks_.size() || holding.site >= sites ||
                find(holding.stack, holding.site) != HashIndex::none) {
                return false;
            }
            index_.insert(hash(holding.stack, holding.site), index);
        }
        return true;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.holdings_);
    }

  private:
    static std::uint64_t hash(std::uint32_t stack, std::uint32_t site) {
        return HashIndex::mix(std::uint64_t{stack} << 32 | site);
    }
    std::uint32_t find(std::uint32_t stack, std::uint32_t site) const {
        return index_.find(hash(stack, site), [&](std::uint32_t index) {
            return holdings_[index].stack == stack && holdings_[index].site == site;
        });
    }
    std::uint32_t find_or_add(std::uint32_t stack, std::uint32_t site) {
        const std::uint32_t known = find(stack, site);
        if (known != HashIndex::none) {
            return known;
        }
        const auto index = static_cast<std::uint32_t>(holdings_.size());
        index_.reserve_slot();
        holdings_.push_back({.stack = stack, .site = site});
        index_.insert(hash(stack, site), index);
        return index;
    }

    std::vector<NnModuleStackDef> stacks_;
    std::map<std::uint32_t, NnModuleName> names_;
    std::vector<NnModuleHolding> holdings_;
    HashIndex index_;
};

}  // namespace memlab::trace
