// A hash table of positions: which element of someone else's array has a given key. The elements
// stay where they are, packed; the table holds eight bytes for each, and a look-up touches one line
// of it and the element found. Nothing is allocated but when the table doubles.
//
// Open addressing with linear probing; a removal moves what follows back into the hole, so that no
// tombstones pile up. The caller brings the hash (32 good bits of it are used) and the comparison.
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

    /// Enough for addresses and their like, at a third of the price: Fibonacci hashing, whose upper
    /// bits are the good ones (Knuth, The Art of Computer Programming, 6.4).
    static constexpr std::uint64_t spread(std::uint64_t value) {
        return (value * 0x9e3779b97f4a7c15) >> 32;
    }

    /// The position under `hash` for which `same(position)` holds, or `none`.
    template <typename Same>
    std::uint32_t find(std::uint64_t hash, Same same) const {
        if (size_ == 0) {
            return none;
        }
        const std::uint32_t tag = tag_of(hash);
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

    /// After this the next insert() does not throw. May throw std::bad_alloc, and then has changed
    /// nothing.
    void make_room() {
        if ((size_ + 1) * 2 > entries_.size()) {
            grow();
        }
    }

    /// `position` must not be in it. May throw std::bad_alloc, and then has changed nothing.
    void insert(std::uint64_t hash, std::uint32_t position) {
        make_room();
        put({tag_of(hash), position});
        ++size_;
    }

    /// `position` must be in it under `hash`.
    void erase(std::uint64_t hash, std::uint32_t position) {
        std::size_t hole = tag_of(hash) & mask();
        while (entries_[hole].position != position) {
            hole = (hole + 1) & mask();
        }
        for (std::size_t slot = (hole + 1) & mask(); entries_[slot].position != none;
             slot = (slot + 1) & mask()) {
            // What may not move is at home after the hole, up to where it is.
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

    static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash); }
    std::size_t mask() const { return entries_.size() - 1; }

    void put(Entry entry) {
        std::size_t slot = entry.tag & mask();
        while (entries_[slot].position != none) {
            slot = (slot + 1) & mask();
        }
        entries_[slot] = entry;
    }

    void grow() {
        constexpr std::size_t smallest = 16;
        std::vector<Entry> before(entries_.empty() ? smallest : entries_.size() * 2);
        before.swap(entries_);
        for (const Entry& entry : before) {
            if (entry.position != none) {
                put(entry);
            }
        }
    }

    std::vector<Entry> entries_;  ///< a power of two of them, half of them free at least
    std::size_t size_ = 0;
};

}  // namespace memlab::trace
