#include "allocator/block_index.hpp"

#include <iterator>
#include <utility>

namespace memlab::allocator {

std::uint64_t BlockIndex::mix(std::uint64_t value) noexcept {
    std::uint64_t mixed = value * 0xbf58476d1ce4e5b9ULL;
    mixed ^= mixed >> 29;
    return mixed * 0x94d049bb133111ebULL >> 20;
}

/// Neighbours within 32 KiB get neighbouring buckets: who looks one up will soon look at others.
/// Which of those is mixed too, or blocks that are aligned alike would share a bucket.
std::uint64_t BlockIndex::hash_of(Address address) noexcept {
    const std::uint64_t unit = address >> 9;
    return mix(unit >> 6) ^ (unit & 63);
}

bool BlockIndex::is_signpost(const Block& block) noexcept {
    return block.previous == nullptr || mix(block.address >> 9) % 16 == 0;
}

std::size_t BlockIndex::bucket_of(Address address) const noexcept {
    const std::uint64_t hash = hash_of(address);
    const std::size_t number = hash % (2 * round_);
    return number < buckets_ ? number : hash % round_;
}

void BlockIndex::reserve(std::size_t blocks) {
    while (chunks_.size() * chunk_size < count_ + blocks) {
        chunks_.push_back(std::make_unique<Chunk>());
    }
    while (spare_count_ < blocks) {
        Signposts made;
        made.try_emplace(0);
        spares_.at(spare_count_++) = made.extract(made.begin());
    }
}

/// Adds a bucket and moves to it what belongs there of the one that it is split from.
void BlockIndex::split_next() noexcept {
    const std::size_t added = buckets_++;
    bucket(added) = nullptr;
    if (added == 0) {
        return;
    }
    if (buckets_ > 2 * round_) {
        round_ *= 2;
    }
    Block** at = &bucket(added - round_);
    while (Block* block = *at) {
        if (bucket_of(block->address) == added) {
            *at = block->same_hash;
            block->same_hash = bucket(added);
            bucket(added) = block;
        } else {
            at = &block->same_hash;
        }
    }
}

[[gnu::hot]] void BlockIndex::insert(Block& block) noexcept {
    if (++count_ > buckets_) {
        split_next();
    }
    Block*& head = bucket(bucket_of(block.address));
    block.same_hash = head;
    head = &block;
    if (is_signpost(block)) {
        auto node = std::move(spares_.at(--spare_count_));
        node.key() = block.address;
        node.mapped() = &block;
        signposts_.insert(std::move(node));
    }
}

[[gnu::hot]] void BlockIndex::remove(Block& block) noexcept {
    Block** at = &bucket(bucket_of(block.address));
    while (*at != &block) {
        at = &(*at)->same_hash;
    }
    *at = block.same_hash;
    --count_;
    if (is_signpost(block)) {
        auto node = signposts_.extract(block.address);
        if (spare_count_ < spares_.size()) {
            spares_.at(spare_count_++) = std::move(node);
        }
    }
}

[[gnu::hot]] Block* BlockIndex::at(Address address) const noexcept {
    if (count_ == 0) {
        return nullptr;
    }
    Block* block = bucket(bucket_of(address));
    while (block != nullptr && block->address != address) {
        block = block->same_hash;
    }
    return block;
}

Block* BlockIndex::around(Address address) const noexcept {
    if (Block* block = at(address)) {
        return block;
    }
    const auto above = signposts_.upper_bound(address);
    if (above == signposts_.begin()) {
        return nullptr;
    }
    Block* block = std::prev(above)->second;
    while (block != nullptr && address - block->address >= block->size) {
        block = block->next;
    }
    return block;
}

void BlockIndex::clear() noexcept {
    chunks_ = std::vector<std::unique_ptr<Chunk>>();
    buckets_ = 0;
    round_ = 1;
    count_ = 0;
    signposts_.clear();
    while (spare_count_ != 0) {
        spares_.at(--spare_count_) = {};
    }
}

bool BlockIndex::sound(const Block& block) const noexcept {
    const auto post = signposts_.find(block.address);
    const bool posted = post != signposts_.end() && post->second == &block;
    return at(block.address) == &block && posted == is_signpost(block);
}

}  // namespace memlab::allocator
