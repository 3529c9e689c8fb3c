// An ordered map from addresses to small values, made for the memory blocks of a program: hundreds
// to millions of them, looked up and replaced all the time, with their neighbours.
//
// A B-tree of two levels: sorted chunks of 64, and a sorted directory of them. A look-up is a
// binary search in one packed array and then in another, where a balanced tree of nodes would miss
// the cache at every level. An insertion moves half a chunk at most, and allocates only when a
// chunk splits; keys that come in ascending order fill chunks completely. The directory grows by
// one entry for every 32 to 64 keys, and is moved as seldom.
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
    /// Stands where a chunk has no key: no key is below another because of it.
    static constexpr std::uint64_t no_key = ~std::uint64_t{0};
    struct Chunk {
        Chunk() { keys.fill(no_key); }
        std::size_t size = 0;
        std::array<std::uint64_t, chunk_keys> keys;
        std::array<Value, chunk_keys> values;
    };

  public:
    /// A place between two keys, or at one. Any insertion or removal makes it invalid.
    class Place {
      public:
        bool operator==(const Place&) const = default;

      private:
        friend AddressMap;
        Place(std::size_t chunk, std::size_t slot) : chunk_(chunk), slot_(slot) {}
        std::size_t chunk_;
        std::size_t slot_;
    };

    bool empty() const { return begin() == end(); }

    Place begin() const { return chunks_.empty() ? end() : settled({0, 0}); }
    Place end() const { return {chunks_.size(), 0}; }

    /// The first key that is not below `key`.
    Place lower_bound(std::uint64_t key) const {
        if (chunks_.empty()) {
            return end();
        }
        const std::size_t chunk = chunk_of(key);
        return settled({chunk, slot_of(*chunks_[chunk], key)});
    }
    /// `key` itself, or end().
    Place find(std::uint64_t key) const {
        const Place place = lower_bound(key);
        return place != end() && key_at(place) == key ? place : end();
    }
    /// The last key that is not above `key`, or end().
    Place floor(std::uint64_t key) const {
        const Place place = lower_bound(key);
        if (place != end() && key_at(place) == key) {
            return place;
        }
        return previous(place);
    }

    /// Of a place at a key.
    std::uint64_t key_at(Place place) const { return chunks_[place.chunk_]->keys[place.slot_]; }
    const Value& at(Place place) const { return chunks_[place.chunk_]->values[place.slot_]; }
    Value& at(Place place) { return chunks_[place.chunk_]->values[place.slot_]; }

    /// The next key, or end(); not of end() itself.
    Place next(Place place) const { return settled({place.chunk_, place.slot_ + 1}); }
    /// The key before; end() when there is none.
    Place previous(Place place) const {
        if (place.slot_ > 0) {
            return {place.chunk_, place.slot_ - 1};
        }
        if (place.chunk_ == 0 || chunks_[place.chunk_ - 1]->size == 0) {
            return end();
        }
        return {place.chunk_ - 1, chunks_[place.chunk_ - 1]->size - 1};
    }

    /// `key` must not be there yet. May throw std::bad_alloc, and then has changed nothing.
    Place insert(std::uint64_t key, const Value& value) {
        return insert(lower_bound(key), key, value);
    }
    /// The same where lower_bound(key) is known.
    Place insert(Place above, std::uint64_t key, const Value& value) {
        if (chunks_.empty()) {
            add_chunk(0, 0);
        }
        std::size_t index = above.chunk_;
        std::size_t slot = above.slot_;
        if (index != 0 && slot == 0 && (index == chunks_.size() || key < firsts_[index])) {
            slot = chunks_[--index]->size;  // behind the last key of the chunk before
        }
        if (chunks_[index]->size == chunk_keys) {
            split(index, key);
            index = chunk_of(key);
            slot = slot_of(*chunks_[index], key);
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

    /// Of a place at a key.
    void erase(Place place) {
        Chunk& chunk = *chunks_[place.chunk_];
        std::copy(chunk.keys.begin() + place.slot_ + 1, chunk.keys.begin() + chunk.size,
                  chunk.keys.begin() + place.slot_);
        std::copy(chunk.values.begin() + place.slot_ + 1, chunk.values.begin() + chunk.size,
                  chunk.values.begin() + place.slot_);
        chunk.keys[--chunk.size] = no_key;
        if (chunk.size < chunk_keys / 4) {
            shrink(place.chunk_);
        }
    }

  private:
    /// From behind a chunk's last key to the next chunk's first.
    Place settled(Place place) const {
        return place.slot_ < chunks_[place.chunk_]->size ? place : Place{place.chunk_ + 1, 0};
    }

    // Which way a search turns is as good as random, and a processor that guessed it wrong has lost
    // more time than the whole search takes. So neither of these has a branch to guess, and each
    // turn chooses among four ways: what is compared for that is read side by side.

    /// The chunk that has `key`, or would get it: the last that begins at or below it.
    std::size_t chunk_of(std::uint64_t key) const {
        const std::uint64_t* const first = firsts_.data();
        std::size_t at = 0;  // the first chunk takes what is below all
        std::size_t length = firsts_.size();
        while (length > 4) {
            const std::size_t quarter = length / 4;
            at += quarter * how_many_up_to(key, first + at + quarter, quarter, 3);
            length -= 3 * quarter;
        }
        return at + (length > 1 ? how_many_up_to(key, first + at + 1, 1, length - 1) : 0);
    }
    static std::size_t how_many_up_to(std::uint64_t key, const std::uint64_t* keys,
                                      std::size_t step, std::size_t count) {
        std::size_t found = 0;
        for (std::size_t i = 0; i < count; ++i) {
            found += static_cast<std::size_t>(keys[i * step] <= key);
        }
        return found;
    }

    /// How many of the chunk's keys are below `key`.
    static std::size_t slot_of(const Chunk& chunk, std::uint64_t key) {
        static_assert(chunk_keys == 64);
        const std::uint64_t* const keys = chunk.keys.data();
        std::size_t at = 16 * how_many_below(key, keys + 15, 16, 3);
        at += 4 * how_many_below(key, keys + at + 3, 4, 3);
        return at + how_many_below(key, keys + at, 1, 4);
    }
    static std::size_t how_many_below(std::uint64_t key, const std::uint64_t* keys,
                                      std::size_t step, std::size_t count) {
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

    /// Makes room in a full chunk for `key`: in the middle, or behind its end when that is where
    /// the key goes.
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

    /// A chunk with few keys left joins its neighbour when both fit well into one. The last chunk
    /// stays, so that a map that is empty now and then allocates nothing.
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
        firsts_.front() = 0;  // the first chunk takes what is below all
    }

    std::vector<std::uint64_t> firsts_;  ///< the lowest key that a chunk may hold
    std::vector<std::unique_ptr<Chunk>> chunks_;
};

}  // namespace memlab::trace
