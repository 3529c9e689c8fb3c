// A small hash table of bytes and allocations by site: what one open scope holds. It keeps its
// memory when cleared, and clear() is O(items).
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

        template <typename Self, typename Archive>
        static void state(Self& self, Archive& archive) {
            archive(self.site, self.count, self.bytes);
        }
    };

    /// In order of first appearance; an item may be down to 0.
    const std::vector<Item>& items() const { return items_; }
    bool empty() const { return items_.empty(); }

    /// The item of `site`; null when it has none.
    Item* find(std::uint32_t site) {
        if (slots_.empty()) {
            return nullptr;
        }
        const std::uint32_t at = slots_[find_slot(site)];
        return at == 0 ? nullptr : &items_[at - 1];
    }

    /// May throw std::bad_alloc, without a change.
    void add(std::uint32_t site, std::uint64_t count, std::uint64_t bytes) {
        if (2 * (items_.size() + 1) > slots_.size()) {
            grow();
        }
        std::uint32_t& at = slots_[find_slot(site)];
        if (at == 0) {
            items_.push_back({.site = site});
            at = static_cast<std::uint32_t>(items_.size());
        }
        items_[at - 1].count += count;
        items_[at - 1].bytes += bytes;
    }

    /// Adds all items of `other`. May throw std::bad_alloc.
    void add(const SiteTable& other) {
        for (const Item& item : other.items_) {
            if (item.count != 0) {
                add(item.site, item.count, item.bytes);
            }
        }
    }

    void clear() {
        // In reverse order of insertion: no probe sequence of the rest passes the slot.
        while (!items_.empty()) {
            slots_[find_slot(items_.back().site)] = 0;
            items_.pop_back();
        }
    }

    void swap(SiteTable& other) noexcept {
        items_.swap(other.items_);
        slots_.swap(other.slots_);
    }

    template <typename Self, typename Archive>
    static void state(Self& self, Archive& archive) {
        if constexpr (Archive::reading) {
            for (std::size_t left = archive.count(); left != 0 && archive.ok(); --left) {
                Item item;
                archive(item);
                self.add(item.site, item.count, item.bytes);
            }
        } else {
            archive(self.items_);
        }
    }

  private:
    /// The slot where `site` is or would be.
    std::size_t find_slot(std::uint32_t site) const {
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
            slots_[find_slot(items_[i].site)] = static_cast<std::uint32_t>(i + 1);
        }
    }

    std::vector<Item> items_;
    std::vector<std::uint32_t> slots_;  ///< a power of two; index + 1 of the item, 0: free
};

}  // namespace memlab::trace
