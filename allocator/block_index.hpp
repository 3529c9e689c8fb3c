// Which block holds an address.
//
// Nearly all questions are for the base of a block, which a hash table answers at the price of the
// one cache miss that looking at the block costs anyway, however many there are. It grows by linear
// hashing, a bucket with each block, so that no call ever pays for moving all of them.
//
// An address inside a block is found from a signpost: the first block of each segment is one, and
// of all others one in sixteen, chosen by its address. From the last signpost that is not above
// the address it is a few neighbours upwards. The order of addresses is thus kept for a sixteenth
// of the blocks only, which is what makes the index small.
//
// Neither decides anything but where a block is found: what the pool does never depends on a hash.
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
    /// Makes sure of the host memory for `blocks` insertions; throws std::bad_alloc.
    void reserve(std::size_t blocks);

    /// Whether reserve(blocks) has nothing to do.
    bool ready(std::size_t blocks) const noexcept {
        return spare_count_ >= blocks && chunks_.size() * chunk_size >= count_ + blocks;
    }

    /// A block whose neighbour below, if any, is in the index already. reserve() must have been
    /// called.
    void insert(Block& block) noexcept;

    /// A block that is in the index. Its neighbour below must be as it was when it came.
    void remove(Block& block) noexcept;

    /// The block that begins at `address`.
    Block* at(Address address) const noexcept;

    /// The block that holds `address`.
    Block* around(Address address) const noexcept;

    std::size_t count() const noexcept { return count_; }

    /// Forgets all, and gives the host memory back.
    void clear() noexcept;

    /// True when the block is found as it must be.
    bool sound(const Block& block) const noexcept;

  private:
    static constexpr std::size_t chunk_size = 512;
    using Chunk = std::array<Block*, chunk_size>;
    using Signposts = std::map<Address, Block*>;

    static std::uint64_t mix(std::uint64_t value) noexcept;
    static std::uint64_t hash_of(Address address) noexcept;
    static bool is_signpost(const Block& block) noexcept;
    std::size_t bucket_of(Address address) const noexcept;
    Block*& bucket(std::size_t number) const noexcept {
        return (*chunks_[number / chunk_size])[number % chunk_size];
    }
    void split_next() noexcept;

    std::vector<std::unique_ptr<Chunk>> chunks_;
    std::size_t buckets_ = 0;  ///< in use; a bucket is split for each one that is added
    std::size_t round_ = 1;    ///< the largest power of two that is not above buckets_
    std::size_t count_ = 0;

    Signposts signposts_;
    static constexpr std::size_t kept_spares = 64;
    std::array<Signposts::node_type, kept_spares> spares_;  ///< nodes of signposts to be
    std::size_t spare_count_ = 0;
};

}  // namespace memlab::allocator
