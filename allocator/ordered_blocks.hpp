// Intrusive ordered sets of blocks, keyed by (size, address). The links are in the blocks, so
// insert and remove allocate nothing and cannot fail.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/block.hpp"

namespace memlab::allocator {

/// A treap whose priorities are hashes of the block addresses: two links per block, no stored
/// balance, and the same blocks always make the same tree. Expected O(log blocks), unless the
/// addresses were chosen to defeat the hash.
///
/// `Size` selects the key and the links:
///   static std::uint64_t of(const Block&);
///   static TreeLinks& links(Block&);
template <typename Size>
class OrderedBlocks {
  public:
    void insert(Block& block) noexcept {
        if (first_ == nullptr || less(block, *first_)) {
            first_ = &block;
        }
        Block** at = &root_;
        const std::uint64_t own = priority(block);
        while (*at != nullptr && priority(**at) >= own) {
            at = less(block, **at) ? &links(**at).left : &links(**at).right;
        }
        Block* rest = *at;
        *at = &block;
        // Split the displaced subtree into the block's two children.
        Block** left = &links(block).left;
        Block** right = &links(block).right;
        while (rest != nullptr) {
            if (less(*rest, block)) {
                *left = rest;
                left = &links(*rest).right;
                rest = *left;
            } else {
                *right = rest;
                right = &links(*rest).left;
                rest = *right;
            }
        }
        *left = nullptr;
        *right = nullptr;
    }

    /// The block must be in this tree, its size and address unchanged since insert().
    void remove(Block& block) noexcept {
        Block** at = &root_;
        Block* parent = nullptr;
        while (*at != &block) {
            parent = *at;
            at = less(block, *parent) ? &links(*parent).left : &links(*parent).right;
        }
        Block* left = links(block).left;
        Block* right = links(block).right;
        if (first_ == &block) {  // leftmost: it has no left child, its successor is near
            first_ = parent;
            for (Block* next = right; next != nullptr; next = links(*next).left) {
                first_ = next;
            }
        }
        while (left != nullptr && right != nullptr) {
            if (priority(*left) >= priority(*right)) {
                *at = left;
                at = &links(*left).right;
                left = *at;
            } else {
                *at = right;
                at = &links(*right).left;
                right = *at;
            }
        }
        *at = left != nullptr ? left : right;
    }

    /// The first block not less than (size, address); null when there is none.
    Block* lower_bound(std::uint64_t size, Address address) const noexcept {
        if (first_ == nullptr || !less(*first_, size, address)) {
            return first_;
        }
        Block* found = nullptr;
        for (Block* block = root_; block != nullptr;) {
            if (less(*block, size, address)) {
                block = links(*block).right;
            } else {
                found = block;
                block = links(*block).left;
            }
        }
        return found;
    }

    /// The first block greater than (size, address); null when there is none.
    Block* upper_bound(std::uint64_t size, Address address) const noexcept {
        return lower_bound(size, address + 1);
    }

    /// The last block less than (size, address); null when there is none.
    Block* before(std::uint64_t size, Address address) const noexcept {
        Block* found = nullptr;
        for (Block* block = root_; block != nullptr;) {
            if (less(*block, size, address)) {
                found = block;
                block = links(*block).right;
            } else {
                block = links(*block).left;
            }
        }
        return found;
    }

    /// Visits what is not less than (size, address), in order, until visit(Block&) is true; returns
    /// that one, null if there is none. `visit` must not change the set. O(log blocks + visited).
    template <typename Visit>
    Block* find_from(std::uint64_t size, Address address, const Visit& visit) const noexcept {
        constexpr unsigned capacity = 48;  // a deeper tree is entered once more
        Block* ancestors[capacity];        // that are greater, and not visited
        unsigned depth = 0;
        const auto descend = [&](Block* node) {
            while (node != nullptr) {
                if (less(*node, size, address)) {
                    node = links(*node).right;
                    continue;
                }
                if (depth == capacity) {
                    std::copy(ancestors + 1, ancestors + capacity, ancestors);
                    --depth;
                }
                ancestors[depth++] = node;
                node = links(*node).left;
            }
        };
        for (descend(root_); depth != 0;) {
            Block* const node = ancestors[--depth];
            if (visit(*node)) {
                return node;
            }
            size = Size::of(*node);
            address = node->address + 1;
            descend(depth == 0 ? root_ : links(*node).right);
        }
        return nullptr;
    }

    Block* first() const noexcept { return first_; }
    Block* last() const noexcept {
        Block* found = root_;
        while (found != nullptr && links(*found).right != nullptr) {
            found = links(*found).right;
        }
        return found;
    }

    bool empty() const noexcept { return root_ == nullptr; }

  private:
    static TreeLinks& links(Block& block) noexcept { return Size::links(block); }

    static bool less(const Block& block, std::uint64_t size, Address address) noexcept {
        return Size::of(block) != size ? Size::of(block) < size : block.address < address;
    }
    static bool less(const Block& a, const Block& b) noexcept {
        return less(a, Size::of(b), b.address);
    }

    static std::uint64_t priority(const Block& block) noexcept {
        const std::uint64_t mixed = (block.address >> 9) * 0x9e3779b97f4a7c15ULL;
        return mixed ^ (mixed >> 32);
    }

    Block* root_ = nullptr;
    Block* first_ = nullptr;  ///< cached: the most frequent query
};

/// The same order for very many blocks: segregated by size class, with a bitmap of the classes in
/// use. One tree for each size up to 128 units, then 32 per power of two. A best fit reads the
/// bitmap and the first block of one tree; a tree is only as deep as its class has blocks.
template <typename Size>
class SizedBlocks {
  public:
    /// Sizes are multiples of a unit of 2^`unit_bits`, which is at least 9.
    explicit SizedBlocks(unsigned unit_bits) : unit_bits_(unit_bits) {}

    void insert(Block& block) noexcept {
        const std::size_t number = tree_number(Size::of(block));
        words_[number / 64] |= bit(number);
        word_bits_ |= bit(number / 64);
        trees_[number].insert(block);
        ++count_;
    }

    void remove(Block& block) noexcept {
        const std::size_t number = tree_number(Size::of(block));
        trees_[number].remove(block);
        --count_;
        if (trees_[number].empty()) {
            words_[number / 64] &= ~bit(number);
            if (words_[number / 64] == 0) {
                word_bits_ &= ~bit(number / 64);
            }
        }
    }

    Block* lower_bound(std::uint64_t size, Address address) const noexcept {
        const std::size_t number = tree_number(size);
        Block* found = trees_[number].lower_bound(size, address);
        return found != nullptr ? found : first_above(number);
    }

    Block* upper_bound(std::uint64_t size, Address address) const noexcept {
        return lower_bound(size, address + 1);
    }

    /// As OrderedBlocks::find_from().
    template <typename Visit>
    Block* find_from(std::uint64_t size, Address address, const Visit& visit) const noexcept {
        for (std::size_t number = tree_number(size); number != tree_count;
             number = used_above(number)) {
            if (Block* const found = trees_[number].find_from(size, address, visit)) {
                return found;
            }
        }
        return nullptr;
    }

    Block* before(std::uint64_t size, Address address) const noexcept {
        const std::size_t number = tree_number(size);
        Block* found = trees_[number].before(size, address);
        return found != nullptr ? found : last_below(number);
    }

    Block* last() const noexcept { return last_below(tree_count); }

    std::size_t count() const noexcept { return count_; }

  private:
    static constexpr std::size_t tree_count = 1664;  // 26 words: all sizes of 64 bits

    static std::uint64_t bit(std::size_t number) noexcept {
        return std::uint64_t{1} << (number % 64);
    }
    static std::uint64_t bits_above(std::size_t number) noexcept {
        return ~(bit(number) | (bit(number) - 1));
    }

    std::size_t tree_number(std::uint64_t size) const noexcept {
        const std::uint64_t units = size >> unit_bits_;
        if (units < 128) {
            return units;
        }
        const auto power = static_cast<unsigned>(std::bit_width(units)) - 6;
        return 128 + (power - 2) * std::size_t{32} + ((units >> power) - 32);
    }

    /// The next tree that is not empty; tree_count: none.
    std::size_t used_above(std::size_t number) const noexcept {
        std::size_t word = number / 64;
        std::uint64_t in_word = words_[word] & bits_above(number);
        if (in_word == 0) {
            const std::uint64_t words = word_bits_ & bits_above(word);
            if (words == 0) {
                return tree_count;
            }
            word = static_cast<std::size_t>(std::countr_zero(words));
            in_word = words_[word];
        }
        return word * 64 + static_cast<std::size_t>(std::countr_zero(in_word));
    }

    Block* first_above(std::size_t number) const noexcept {
        const std::size_t used = used_above(number);
        return used != tree_count ? trees_[used].first() : nullptr;
    }

    Block* last_below(std::size_t number) const noexcept {
        for (std::size_t word = (number + 63) / 64; word != 0; --word) {
            std::uint64_t in_word = words_[word - 1];
            if (number / 64 == word - 1) {
                in_word &= bit(number) - 1;
            }
            if (in_word != 0) {
                const auto top = static_cast<std::size_t>(std::bit_width(in_word)) - 1;
                return trees_[(word - 1) * 64 + top].last();
            }
        }
        return nullptr;
    }

    unsigned unit_bits_;
    std::size_t count_ = 0;
    std::uint64_t word_bits_ = 0;  ///< summary bitmap: which of words_ are not 0
    std::array<std::uint64_t, tree_count / 64> words_{};
    std::array<OrderedBlocks<Size>, tree_count> trees_{};
};

}  // namespace memlab::allocator
