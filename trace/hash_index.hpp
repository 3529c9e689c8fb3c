// A hash table that maps keys to positions in an array of the caller's. It stores eight bytes per
// element, so a lookup touches one of its cache lines and the element found. It allocates only when
// it doubles.
//
// Open addressing with linear probing and backward-shift deletion, so there are no tombstones. The
// caller supplies the hash (32 bits of it are used) and the comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace memlab::trace {

class HashIndex {
  public:
    static constexpr std::uint32_t none = 0xffffffff;

    /// A finalizer of good avalanche (splitmix64's): addresses are multiples of 512, ids small.
    static constexpr std::uint64_t mix(std::uint64_t value) {
        value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
        value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
        return value ^ (value >> 31);
    }

    /// Fibonacci hashing, upper bits (Knuth, The Art of Computer Programming, 6.4): sufficient for
    /// addresses, at a third of the cost.
    static constexpr std::uint64_t spread(std::uint64_t value) {
        return (value * 0x9e3779b97f4a7c15) >> 32;
    }

    /// The position under `hash` for which `same(position)` holds, or `none`.
    template <typename Same>
    std::uint32_t find(std::uint64_t hash, Same same) const {
        if (size_ == 0) {
            return none;
        }
        const std::uint32_t tag = make_tag(hash);
        for (std::size_t slot = tag & mask();; slot = (slot + 1) & mask()) {
            const Entry& entry = entries_[slot];
            if (entry.position == none) {
                return none;
            }
            if (entry.tag == tag && same(entry.position)) {
                return entry.position;
            }
        }
    }

    /// Ensures that the next insert() does not throw. May throw std::bad_alloc, without a change.
    void reserve_slot() {
        if ((size_ + 1) * 2 > entries_.size()) {
            grow();
        }
    }

    /// `position` must not be in it. May throw std::bad_alloc, without a change.
    void insert(std::uint64_t hash, std::uint32_t position) {
        reserve_slot();
        put({make_tag(hash), position});
        ++size_;
    }

    /// `position` must be in it under `hash`.
    void erase(std::uint64_t hash, std::uint32_t position) {
        std::size_t hole = make_tag(hash) & mask();
        while (entries_[hole].position != position) {
            hole = (hole + 1) & mask();
        }
        for (std::size_t slot = (hole + 1) & mask(); entries_[slot].position != none;
             slot = (slot + 1) & mask()) {
            // An entry may move into the hole unless its home slot is after the hole.
            const std::size_t from_home = (slot - entries_[slot].tag) & mask();
            if (from_home >= ((slot - hole) & mask())) {
                entries_[hole] = entries_[slot];
                hole = slot;
            }
        }
        entries_[hole] = {};
        --size_;
    }

    void clear() {
        entries_.clear();
        size_ = 0;
    }

  private:
    struct Entry {
        std::uint32_t tag = 0;
        std::uint32_t position = none;
    };

    static std::uint32_t make_tag(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }
    std::size_t mask() const { return entries_.size() - 1; }

    void put(Entry entry) {
        std::size_t slot = entry.tag & mask();
        while (entries_[slot].position != none) {
            slot = (slot + 1) & mask();
        }
        entries_[slot] = entry;
    }

    void grow() {
        constexpr std::size_t min_size = 16;
        std::vector<Entry> previous(entries_.empty() ? min_size : entries_.size() * 2);
        previous.swap(entries_);
        for (const Entry& entry : previous) {
            if (entry.position != none) {
                put(entry);
            }
        }
    }

    std::vector<Entry> entries_;  ///< a power of two; at least half are empty
    std::size_t size_ = 0;
};

}  // namespace memlab::trace
