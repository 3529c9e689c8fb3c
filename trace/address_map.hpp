// An ordered map from addresses to small values, for the memory blocks of a program: hundreds to
// millions, with frequent lookups, updates and neighbour queries.
//
// A two-level B-tree: sorted chunks of 64 keys, and a sorted directory of chunks. A lookup searches
// two packed arrays, where a balanced tree of nodes would miss the cache at every level. An
// insertion moves one chunk at most, and allocates only when a chunk splits; ascending keys fill
// chunks completely. The directory gets one entry per 32 to 64 keys and changes as rarely.
//
// Thread-safety: as the standard library's containers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace memlab::trace {

template <typename Value>
class AddressMap {
    static constexpr std::size_t chunk_keys = 64;
    /// Fills the unused slots of a chunk; compares above all keys.
    static constexpr std::uint64_t no_key = ~std::uint64_t{0};
    struct Chunk {
        Chunk() { keys.fill(no_key); }
        std::size_t size = 0;
        std::array<std::uint64_t, chunk_keys> keys;
        std::array<Value, chunk_keys> values;
    };

  public:
    /// A position in the map, as an iterator. Invalidated by any insertion or removal.
    class Position {
      public:
        bool operator==(const Position&) const = default;

      private:
        friend AddressMap;
        Position(std::size_t chunk, std::size_t slot) : chunk_(chunk), slot_(slot) {}
        std::size_t chunk_;
        std::size_t slot_;
    };

    bool empty() const { return begin() == end(); }

    Position begin() const { return chunks_.empty() ? end() : normalized({0, 0}); }
    Position end() const { return {chunks_.size(), 0}; }

    /// The first key that is not below `key`.
    Position lower_bound(std::uint64_t key) const {
        if (chunks_.empty()) {
            return end();
        }
        const std::size_t chunk = find_chunk(key);
        return normalized({chunk, find_slot(*chunks_[chunk], key)});
    }
    /// `key` itself, or end().
    Position find(std::uint64_t key) const {
        const Position position = lower_bound(key);
        return position != end() && key_at(position) == key ? position : end();
    }
    /// The last key that is not above `key`, or end().
    Position floor(std::uint64_t key) const {
        const Position position = lower_bound(key);
        if (position != end() && key_at(position) == key) {
            return position;
        }
        return previous(position);
    }

    /// `position` must be at a key.
    std::uint64_t key_at(Position position) const {
        return chunks_[position.chunk_]->keys[position.slot_];
    }
    const Value& at(Position position) const {
        return chunks_[position.chunk_]->values[position.slot_];
    }
    Value& at(Position position) { return chunks_[position.chunk_]->values[position.slot_]; }

    /// The next key, or end(). `position` must not be end().
    Position next(Position position) const {
        return normalized({position.chunk_, position.slot_ + 1});
    }
    /// The key before; end() when there is none.
    Position previous(Position position) const {
        if (position.slot_ > 0) {
            return {position.chunk_, position.slot_ - 1};
        }
        if (position.chunk_ == 0 || chunks_[position.chunk_ - 1]->size == 0) {
            return end();
        }
        return {position.chunk_ - 1, chunks_[position.chunk_ - 1]->size - 1};
    }

    /// `key` must not be in the map. May throw std::bad_alloc, without a change.
    Position insert(std::uint64_t key, const Value& value) {
        return insert(lower_bound(key), key, value);
    }
    /// The same, where `above` is lower_bound(key).
    Position insert(Position above, std::uint64_t key, const Value& value) {
        if (chunks_.empty()) {
            add_chunk(0, 0);
        }
        std::size_t index = above.chunk_;
        std::size_t slot = above.slot_;
        if (index != 0 && slot == 0 && (index == chunks_.size() || key < firsts_[index])) {
            slot = chunks_[--index]->size;  // after the last key of the chunk before
        }
        if (chunks_[index]->size == chunk_keys) {
            split(index, key);
            index = find_chunk(key);
            slot = find_slot(*chunks_[index], key);
        }
        Chunk& chunk = *chunks_[index];
        std::copy_backward(chunk.keys.begin() + slot, chunk.keys.begin() + chunk.size,
                           chunk.keys.begin() + chunk.size + 1);
        std::copy_backward(chunk.values.begin() + slot, chunk.values.begin() + chunk.size,
                           chunk.values.begin() + chunk.size + 1);
        chunk.keys[slot] = key;
        chunk.values[slot] = value;
        ++chunk.size;
        return {index, slot};
    }

    /// `position` must be at a key.
    void erase(Position position) {
        Chunk& chunk = *chunks_[position.chunk_];
        std::copy(chunk.keys.begin() + position.slot_ + 1, chunk.keys.begin() + chunk.size,
                  chunk.keys.begin() + position.slot_);
        std::copy(chunk.values.begin() + position.slot_ + 1, chunk.values.begin() + chunk.size,
                  chunk.values.begin() + position.slot_);
        chunk.keys[--chunk.size] = no_key;
        if (chunk.size < chunk_keys / 4) {
            shrink(position.chunk_);
        }
    }

  private:
    /// Turns a position after a chunk's last key into one at the next chunk's first.
    Position normalized(Position position) const {
        return position.slot_ < chunks_[position.chunk_]->size ? position
                                                               : Position{position.chunk_ + 1, 0};
    }

    // The branches of a binary search are unpredictable, and one misprediction costs more than the
    // whole search. So both searches are branchless and four-way: the three comparisons of a step
    // are independent loads.

    /// The chunk for `key`: the last one that begins at or below it.
    std::size_t find_chunk(std::uint64_t key) const {
        const std::uint64_t* const first = firsts_.data();
        std::size_t at = 0;  // the first chunk also holds keys below all others
        std::size_t length = firsts_.size();
        while (length > 4) {
            const std::size_t quarter = length / 4;
            at += quarter * count_up_to(key, first + at + quarter, quarter, 3);
            length -= 3 * quarter;
        }
        return at + (length > 1 ? count_up_to(key, first + at + 1, 1, length - 1) : 0);
    }
    static std::size_t count_up_to(std::uint64_t key, const std::uint64_t* keys, std::size_t step,
                                   std::size_t count) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            found += static_cast<std::size_t>(keys[i * step] <= key);
        }
        return found;
    }

    /// How many of the chunk's keys are below `key`.
    static std::size_t find_slot(const Chunk& chunk, std::uint64_t key) {
        static_assert(chunk_keys == 64);
        const std::uint64_t* const keys = chunk.keys.data();
        std::size_t at = 16 * count_below(key, keys + 15, 16, 3);
        at += 4 * count_below(key, keys + at + 3, 4, 3);
        return at + count_below(key, keys + at, 1, 4);
    }
    static std::size_t count_below(std::uint64_t key, const std::uint64_t* keys, std::size_t step,
                                   std::size_t count) {
        std::size_t found = 0;
#pragma GCC unroll 4
        for (std::size_t i = 0; i < count; ++i) {
            found += static_cast<std::size_t>(keys[i * step] < key);
        }
        return found;
    }

    void add_chunk(std::size_t index, std::uint64_t first) {
        auto chunk = std::make_unique<Chunk>();
        if (firsts_.size() == firsts_.capacity()) {
            firsts_.reserve(std::max<std::size_t>(4, firsts_.size() * 2));
        }
        chunks_.insert(chunks_.begin() + static_cast<std::ptrdiff_t>(index), std::move(chunk));
        firsts_.insert(firsts_.begin() + static_cast<std::ptrdiff_t>(index), first);
    }

    /// Splits a full chunk for `key`: in the middle, or at the end if `key` is above all its keys.
    void split(std::size_t index, std::uint64_t key) {
        const std::size_t keep = key > chunks_[index]->keys.back() ? chunk_keys : chunk_keys / 2;
        const std::uint64_t first = keep == chunk_keys ? key : chunks_[index]->keys[keep];
        add_chunk(index + 1, first);
        Chunk& from = *chunks_[index];
        Chunk& to = *chunks_[index + 1];
        std::copy(from.keys.begin() + keep, from.keys.end(), to.keys.begin());
        std::copy(from.values.begin() + keep, from.values.end(), to.values.begin());
        std::fill(from.keys.begin() + keep, from.keys.end(), no_key);
        to.size = chunk_keys - keep;
        from.size = keep;
    }

    /// Merges a chunk with a neighbour when both fit into half a chunk. The last chunk is kept, so
    /// that a map that is empty at times does not reallocate.
    void shrink(std::size_t index) {
        const auto join = [this](std::size_t left) {
            Chunk& to = *chunks_[left];
            const Chunk& from = *chunks_[left + 1];
            if (to.size + from.size > chunk_keys / 2) {
                return false;
            }
            std::copy_n(from.keys.begin(), from.size, to.keys.begin() + to.size);
            std::copy_n(from.values.begin(), from.size, to.values.begin() + to.size);
            to.size += from.size;
            drop_chunk(left + 1);
            return true;
        };
        if (index + 1 < chunks_.size() && join(index)) {
            return;
        }
        if (index > 0 && join(index - 1)) {
            return;
        }
        if (chunks_[index]->size == 0 && chunks_.size() > 1) {
            drop_chunk(index);
        }
    }

    void drop_chunk(std::size_t index) {
        chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(index));
        firsts_.erase(firsts_.begin() + static_cast<std::ptrdiff_t>(index));
        firsts_.front() = 0;  // the first chunk also holds keys below all others
    }

    std::vector<std::uint64_t> firsts_;  ///< the lowest key that a chunk may hold
    std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace memlab::trace
