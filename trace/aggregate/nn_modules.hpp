// The memory of PyTorch's nn.Modules, by call site: by the stack of their calls that allocated it,
// and, of what no call allocated, by the nn.Module whose parameter, buffer, or state of an
// optimizer its label names.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trace/aggregate/nn_module_owner.hpp"
#include "trace/aggregate/totals.hpp"
#include "trace/hash_index.hpp"
#include "trace/record.hpp"

namespace memlab::trace {

/// What holds memory: a stack of calls, or an nn.Module whose labels are given to memory that no
/// call allocated.
struct NnModuleHolder {
    std::uint32_t stack = 0;  ///< NnModuleStackDef::id; 0: labels say so
    std::uint32_t owner = 0;  ///< from 1, in order of first appearance, those of labels; 0: a stack
    std::uint32_t nn_module = 0;

    static constexpr std::uint32_t of_labels = std::uint32_t{1} << 31;
    /// The same in each reading of a recording, whether or not it counts those of labels; never 0.
    std::uint32_t code() const { return owner != 0 ? owner | of_labels : stack; }
};

/// What one of them holds of one call site.
struct NnModuleHolding {
    std::uint32_t holder = 0;  ///< position in NnModuleStats::holders() + 1
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
        archive(self.holder, self.site, self.count, self.bytes, self.live_count, self.live_bytes,
                self.at_peak_count, self.at_peak_bytes, self.peak_checked);
    }
};

/// Thread-safety: none. What adds may throw std::bad_alloc.
class NnModuleStats {
  public:
    void on(const NnModuleStackDef& record) {
        stacks_.push_back(record);
        holders_.push_back({.stack = record.id, .owner = 0, .nn_module = record.nn_module});
        of_stack_.push_back(static_cast<std::uint32_t>(holders_.size()));
    }
    /// `name`: the text of record.name.
    void on(const NnModuleName& record, const std::string& name) {
        const auto [at, is_new] = names_.try_emplace(record.nn_module, Named{record, name});
        if (!is_new) {
            const auto of_name = by_name_.find(at->second.name);
            of_name->second.erase(record.nn_module);
            if (of_name->second.empty()) {
                by_name_.erase(of_name);
            }
            at->second = Named{record, name};
        }
        by_name_[name].insert(record.nn_module);
    }

    /// By id - 1.
    const std::vector<NnModuleStackDef>& stacks() const { return stacks_; }
    /// Of a holding's number: that of an allocation, NnModuleHolder::code(); 0 of 0.
    std::uint32_t code_of(std::uint32_t number) const {
        return number == 0 ? 0 : holders_[holdings_[number - 1].holder - 1].code();
    }
    /// In order of first appearance.
    const std::vector<NnModuleHolder>& holders() const { return holders_; }
    const std::vector<NnModuleHolding>& holdings() const { return holdings_; }
    /// What is known of an nn.Module; null: it has no name.
    const NnModuleName* name_of(std::uint32_t nn_module) const {
        const auto at = names_.find(nn_module);
        return at == names_.end() ? nullptr : &at->second.record;
    }
    /// visit(NnModuleName) for each that has a name, by number.
    template <typename Visit>
    void for_each_name(const Visit& visit) const {
        for (const auto& [number, named] : names_) {
            visit(named.record);
        }
    }
    /// What stands for a stack in holders(): its position + 1. 0: there is no such stack.
    std::uint32_t holder_of_stack(std::uint32_t stack) const {
        return stack == 0 || stack > of_stack_.size() ? 0 : of_stack_[stack - 1];
    }

    // `peak_number`: of the site's device, before the change.
    /// The holding's number, from 1.
    std::uint32_t allocated(std::uint32_t stack, std::uint32_t site, std::uint64_t size,
                            std::uint64_t peak_number) {
        const std::uint32_t index = find_or_add(of_stack_[stack - 1], site);
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

    /// Whether a label may say whose the memory is: no call allocated it. `number`: the holding's.
    bool may_be_labelled(std::uint32_t number) const {
        return number == 0 ? !names_.empty()
                           : holders_[holdings_[number - 1].holder - 1].stack == 0;
    }
    /// The number of the holding of the nn.Module that the label names; 0: there is none.
    std::uint32_t labelled(std::string_view label, std::uint32_t site) {
        const std::uint32_t found = nn_module_owner(label, [this](std::string_view name) {
            const auto of_name = by_name_.find(name);
            return of_name == by_name_.end() ? 0 : *of_name->second.rbegin();
        });
        if (found == 0) {
            return 0;
        }
        const auto [at, is_new] = owners_.try_emplace(found, 0);
        if (is_new) {
            const auto owner = static_cast<std::uint32_t>(owners_.size());
            holders_.push_back({.stack = 0, .owner = owner, .nn_module = found});
            at->second = static_cast<std::uint32_t>(holders_.size());
        }
        return find_or_add(at->second, site) + 1;
    }
    /// A live allocation is another holding's, or none's (0). What was live at the peak was its at
    /// the peak.
    void move(std::uint32_t from, std::uint32_t to, std::uint64_t size, std::uint64_t peak_number,
              bool at_peak) {
        if (from != 0) {
            freed(from, size, peak_number);
            NnModuleHolding& holding = holdings_[from - 1];
            --holding.count;
            holding.bytes -= size;
            holding.at_peak_count -= at_peak ? 1 : 0;
            holding.at_peak_bytes -= at_peak ? size : 0;
        }
        if (to != 0) {
            NnModuleHolding& holding = holdings_[to - 1];
            keep_peak(holding, peak_number);
            ++holding.count;
            ++holding.live_count;
            holding.bytes += size;
            holding.live_bytes += size;
            holding.at_peak_count += at_peak ? 1 : 0;
            holding.at_peak_bytes += at_peak ? size : 0;
        }
    }

    /// Whether the numbers in a restored state are of things that there are; makes the indexes.
    bool restored(std::size_t sites) {
        std::vector<NnModuleHolder> holders;
        of_stack_.clear();
        for (const auto& [position, nn_module] : restored_owners_) {
            add_stacks(holders, position);
            if (holders.size() != position || !owners_.emplace(nn_module, position + 1).second) {
                return false;
            }
            const auto owner = static_cast<std::uint32_t>(owners_.size());
            holders.push_back({.stack = 0, .owner = owner, .nn_module = nn_module});
        }
        add_stacks(holders, stacks_.size() + restored_owners_.size());
        holders_ = std::move(holders);
        restored_owners_.clear();
        for (std::uint32_t index = 0; index < holdings_.size(); ++index) {
            const NnModuleHolding& holding = holdings_[index];
            if (holding.holder == 0 || holding.holder > holders_.size() || holding.site >= sites ||
                find(holding.holder, holding.site) != HashIndex::none) {
                return false;
            }
            index_.insert(hash(holding.holder, holding.site), index);
        }
        return true;
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        archive(self.holdings_);
        if (archive.version() < 8) {
            return;
        }
        if constexpr (Archive::reading) {
            archive(self.restored_owners_);
        } else {
            Owners owners;
            for (std::uint32_t i = 0; i < self.holders_.size(); ++i) {
                if (self.holders_[i].stack == 0) {
                    owners.emplace_hint(owners.end(), i, self.holders_[i].nn_module);
                }
            }
            archive(owners);
        }
    }

  private:
    struct Named {
        NnModuleName record;
        std::string name;
    };
    /// By position in holders().
    using Owners = std::map<std::uint32_t, std::uint32_t>;

    /// Those that come next, up to this many holders.
    void add_stacks(std::vector<NnModuleHolder>& holders, std::size_t count) {
        while (holders.size() < count && of_stack_.size() < stacks_.size()) {
            const NnModuleStackDef& stack = stacks_[of_stack_.size()];
            holders.push_back({.stack = stack.id, .owner = 0, .nn_module = stack.nn_module});
            of_stack_.push_back(static_cast<std::uint32_t>(holders.size()));
        }
    }
    static std::uint64_t hash(std::uint32_t holder, std::uint32_t site) {
        return HashIndex::mix(std::uint64_t{holder} << 32 | site);
    }
    std::uint32_t find(std::uint32_t holder, std::uint32_t site) const {
        return index_.find(hash(holder, site), [&](std::uint32_t index) {
            return holdings_[index].holder == holder && holdings_[index].site == site;
        });
    }
    std::uint32_t find_or_add(std::uint32_t holder, std::uint32_t site) {
        const std::uint32_t known = find(holder, site);
        if (known != HashIndex::none) {
            return known;
        }
        const auto index = static_cast<std::uint32_t>(holdings_.size());
        index_.reserve_slot();
        holdings_.push_back({.holder = holder, .site = site});
        index_.insert(hash(holder, site), index);
        return index;
    }

    std::vector<NnModuleStackDef> stacks_;
    std::vector<NnModuleHolder> holders_;
    std::vector<std::uint32_t> of_stack_;            ///< holder_of_stack(), by id - 1
    std::map<std::uint32_t, std::uint32_t> owners_;  ///< those of labels, by nn.Module
    std::map<std::uint32_t, Named> names_;           ///< by number
    std::map<std::string, std::set<std::uint32_t>, std::less<>> by_name_;
    Owners restored_owners_;
    std::vector<NnModuleHolding> holdings_;
    HashIndex index_;
};

}  // namespace memlab::trace
