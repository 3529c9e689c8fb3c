#include "allocator/block_index.hpp"

#include <iterator>
#include <utility>

namespace memlab::allocator {

std::uint64_t BlockIndex::mix(std::uint64_t value) noexcept {
    std::uint64_t mixed = value * 0xbf58476d1ce4e5b9ULL;
    mixed ^= mixed >> 29;
    return mixed * 0x94d049bb133111ebULL >> 20;
}

/// Addresses within 32 KiB get neighbouring buckets, since they tend to be looked up together. The
/// low bits are XORed in, so that equally aligned blocks do not share a bucket.
std::uint64_t BlockIndex::hash(Address address) noexcept {
    const std::uint64_t unit = address >> 9;
    return mix(unit >> 6) ^ (unit & 63);
}

bool BlockIndex::is_anchor(const Block& block) noexcept {
    return block.previous == nullptr || mix(block.address >> 9) % 16 == 0;
}

std::size_t BlockIndex::bucket_number(Address address) const noexcept {
    const std::uint64_t mixed = hash(address);
    // Masks, not remainders: a division would take as long as the rest of a lookup.
    const std::size_t number = mixed & (2 * round_ - 1);
    return number < buckets_ ? number : mixed & (round_ - 1);
}

void BlockIndex::reserve(std::size_t blocks) {
    while (chunks_.size() * chunk_size < count_ + blocks) {
        chunks_.push_back(std::make_unique<Chunk>());
    }
    while (spare_count_ < blocks) {
        Anchors made;
        made.try_emplace(0);
        spares_.at(spare_count_++) = made.extract(made.begin());
    }
}

/// A step of linear hashing: adds a bucket and moves its share of one older bucket's chain to it.
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
        if (bucket_number(block->address) == added) {
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
    Block*& head = bucket(bucket_number(block.address));
    block.same_hash = head;
    head = &block;
    if (is_anchor(block)) {
        auto node = std::move(spares_.at(--spare_count_));
        node.key() = block.address;
        node.mapped() = &block;
        anchors_.insert(std::move(node));
    }
}

[[gnu::hot]] void BlockIndex::remove(Block& block) noexcept {
    Block** at = &bucket(bucket_number(block.address));
    while (*at != &block) {
        at = &(*at)->same_hash;
    }
    *at = block.same_hash;
    --count_;
    if (is_anchor(block)) {
        auto node = anchors_.extract(block.address);
        if (spare_count_ < spares_.size()) {
            spares_.at(spare_count_++) = std::move(node);
        }
    }
}

[[gnu::hot]] Block* BlockIndex::at(Address address) const noexcept {
    if (count_ == 0) {
        return nullptr;
    }
    Block* block = bucket(bucket_number(address));
    while (block != nullptr && block->address != address) {
        block = block->same_hash;
    }
    return block;
}

Block* BlockIndex::find_containing(Address address) const noexcept {
    if (Block* block = at(address)) {
        return block;
    }
    const auto above = anchors_.upper_bound(address);
    if (above == anchors_.begin()) {
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
    anchors_.clear();
    while (spare_count_ != 0) {
        spares_.at(--spare_count_) = {};
    }
}

bool BlockIndex::is_consistent(const Block& block) const noexcept {
    const auto anchor = anchors_.find(block.address);
    const bool is_indexed = anchor != anchors_.end() && anchor->second == &block;
    return at(block.address) == &block && is_indexed == is_anchor(block);
}

}  // namespace memlab::allocator
