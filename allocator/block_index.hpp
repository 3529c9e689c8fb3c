// The index of blocks by address.
//
// Nearly all lookups are for a block's base. A chained hash table finds it, for the one cache miss
// that reading the block costs anyway. It grows by linear hashing, one bucket per block, so no call
// pays for a full rehash.
//
// An address inside a block is found through anchors in an ordered map: the first block of each
// segment, and one in sixteen of the others, chosen by address. From the last anchor at or below
// the address, the lookup follows a few neighbour links upwards. Ordering only a sixteenth of the
// blocks keeps the index small.
//
// Hashes affect lookup only; no decision of the pool depends on them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "allocator/block.hpp"

namespace memlab::allocator {

/// Thread-safety: none.
class BlockIndex {
  public:
    /// Allocates the host memory for `blocks` insertions; throws std::bad_alloc.
    void reserve(std::size_t blocks);

    /// Whether `blocks` insertions need no further host memory.
    bool ready(std::size_t blocks) const noexcept {
        return spare_count_ >= blocks && chunks_.size() * chunk_size >= count_ + blocks;
    }

    /// The neighbour below the block, if any, must be in the index already. Needs reserve().
    void insert(Block& block) noexcept;

    /// The block must be in the index, with the same neighbour below as at insert().
    void remove(Block& block) noexcept;

    /// The block that begins at `address`; null when there is none.
    Block* at(Address address) const noexcept;

    /// The block that contains `address`; null when there is none.
    Block* find_containing(Address address) const noexcept;

    std::size_t count() const noexcept { return count_; }

    /// Removes all blocks and frees the host memory.
    void clear() noexcept;

    /// Whether the hash table and the anchors both agree with the block. For validation.
    bool is_consistent(const Block& block) const noexcept;

  private:
    static constexpr std::size_t chunk_size = 512;
    using Chunk = std::array<Block*, chunk_size>;
    using Anchors = std::map<Address, Block*>;

    static std::uint64_t mix(std::uint64_t value) noexcept;
    static std::uint64_t hash(Address address) noexcept;
    static bool is_anchor(const Block& block) noexcept;
    std::size_t bucket_number(Address address) const noexcept;
    Block*& bucket(std::size_t number) const noexcept {
        return (*chunks_[number / chunk_size])[number % chunk_size];
    }
    void split_next() noexcept;

    std::vector<std::unique_ptr<Chunk>> chunks_;
    std::size_t buckets_ = 0;  ///< in use; adding one splits one
    std::size_t round_ = 1;    ///< the largest power of two <= buckets_
    std::size_t count_ = 0;

    Anchors anchors_;
    static constexpr std::size_t kept_spares = 64;
    std::array<Anchors::node_type, kept_spares> spares_;  ///< preallocated map nodes
    std::size_t spare_count_ = 0;
};

}  // namespace memlab::allocator
