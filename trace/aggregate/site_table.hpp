// Bytes and allocations by site, for a few sites out of many: what one open scope holds. A hash
// table whose memory is used again: clearing costs as much as what was in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace memlab::trace {

class SiteTable {
  public:
    struct Item {
        std::uint32_t site = 0;
        std::uint64_t count = 0;
        std::uint64_t bytes = 0;
    };

    /// In order of first appearance; an item may be down to 0.
    const std::vector<Item>& items() const { return items_; }
    bool empty() const { return items_.empty(); }

    /// The item of `site`; null when it has none.
    Item* find(std::uint32_t site) {
        if (slots_.empty()) {
            return nullptr;
        }
        const std::uint32_t at = slots_[slot_of(site)];
        return at == 0 ? nullptr : &items_[at - 1];
    }

    /// May throw std::bad_alloc, and then has not added.
    void add(std::uint32_t site, std::uint64_t count, std::uint64_t bytes) {
        if (2 * (items_.size() + 1) > slots_.size()) {
            grow();
        }
        std::uint32_t& at = slots_[slot_of(site)];
        if (at == 0) {
            items_.push_back({.site = site});
            at = static_cast<std::uint32_t>(items_.size());
        }
        items_[at - 1].count += count;
        items_[at - 1].bytes += bytes;
    }

    /// What `other` holds is added here. May throw std::bad_alloc.
    void add(const SiteTable& other) {
        for (const Item& item : other.items_) {
            if (item.count != 0) {
                add(item.site, item.count, item.bytes);
            }
        }
    }

    void clear() {
        // The last comer first: no other's way to its place leads past it.
        while (!items_.empty()) {
            slots_[slot_of(items_.back().site)] = 0;
            items_.pop_back();
        }
    }

    void swap(SiteTable& other) noexcept {
        items_.swap(other.items_);
        slots_.swap(other.slots_);
    }

  private:
    /// Where `site` is, or would be.
    std::size_t slot_of(std::uint32_t site) const {
        const std::size_t mask = slots_.size() - 1;
        std::size_t slot = (site * 0x9e3779b1U) & mask;
        while (slots_[slot] != 0 && items_[slots_[slot] - 1].site != site) {
            slot = (slot + 1) & mask;
        }
        return slot;
    }

    void grow() {
        std::vector<std::uint32_t> slots(slots_.empty() ? 16 : 2 * slots_.size());
        slots_.swap(slots);
        for (std::size_t i = 0; i < items_.size(); ++i) {
            slots_[slot_of(items_[i].site)] = static_cast<std::uint32_t>(i + 1);
        }
    }

    std::vector<Item> items_;
    std::vector<std::uint32_t> slots_;  ///< a power of two; index + 1 of the item, 0: free
};

}  // namespace memlab::trace
