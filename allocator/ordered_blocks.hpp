// Blocks in order of (size, address), through links in the blocks themselves: joining and leaving
// costs no memory and cannot fail.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "allocator/block.hpp"

namespace memlab::allocator {

/// A tree. It is a treap whose priorities are computed from the addresses: nothing is stored but
/// two links, no rebalancing has to be got right, and the same blocks always make the same tree.
/// O(log blocks) for any addresses that were not chosen to defeat the mixing.
///
/// `Size` says by which size, and where the links are:
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
            at = less(block, **at) ? &links(**at).below : &links(**at).above;
        }
        Block* rest = *at;
        *at = &block;
        // What hung here becomes the block's two sides.
        Block** below = &links(block).below;
        Block** above = &links(block).above;
        while (rest != nullptr) {
            if (less(*rest, block)) {
                *below = rest;
                below = &links(*rest).above;
                rest = *below;
            } else {
                *above = rest;
                above = &links(*rest).below;
                rest = *above;
            }
        }
        *below = nullptr;
        *above = nullptr;
    }

    /// The block must be in this tree, its size and address those with which it came.
    void remove(Block& block) noexcept {
        Block** at = &root_;
        Block* parent = nullptr;
        while (*at != &block) {
            parent = *at;
            at = less(block, *parent) ? &links(*parent).below : &links(*parent).above;
        }
        Block* below = links(block).below;
        Block* above = links(block).above;
        if (first_ == &block) {  // nothing is below it, and the path to it leads down only
            first_ = parent;
            for (Block* next = above; next != nullptr; next = links(*next).below) {
                first_ = next;
            }
        }
        while (below != nullptr && above != nullptr) {
            if (priority(*below) >= priority(*above)) {
                *at = below;
                at = &links(*below).above;
                below = *at;
            } else {
                *at = above;
                at = &links(*above).below;
                above = *at;
            }
        }
        *at = below != nullptr ? below : above;
    }

    /// The first that is not less than (size, address); null when all are.
    Block* at_least(std::uint64_t size, Address address) const noexcept {
        if (first_ == nullptr || !less(*first_, size, address)) {
            return first_;
        }
        Block* found = nullptr;
        for (Block* block = root_; block != nullptr;) {
            if (less(*block, size, address)) {
                block = links(*block).above;
            } else {
                found = block;
                block = links(*block).below;
            }
        }
        return found;
    }

    /// The next after (size, address).
    Block* after(std::uint64_t size, Address address) const noexcept {
        return at_least(size, address + 1);
    }

    /// The last that is less than (size, address); null when none is.
    Block* before(std::uint64_t size, Address address) const noexcept {
        Block* found = nullptr;
        for (Block* block = root_; block != nullptr;) {
            if (less(*block, size, address)) {
                found = block;
                block = links(*block).above;
            } else {
                block = links(*block).below;
            }
        }
        return found;
    }

    Block* first() const noexcept { return first_; }
    Block* last() const noexcept {
        Block* found = root_;
        while (found != nullptr && links(*found).above != nullptr) {
            found = links(*found).above;
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
    Block* first_ = nullptr;  ///< what is asked for most
};

/// The same order for very many blocks: a tree for each size up to 128 units, and for 32 steps of
/// each further power of two, and a bitmap of those that are not empty. A best fit is a look at the
/// bitmap and at the first of a tree, and trees are only as deep as there are blocks of like size.
template <typename Size>
class SizedBlocks {
  public:
    /// Sizes are multiples of a unit of 2^`unit_bits`, which is at least 9.
    explicit SizedBlocks(unsigned unit_bits) : unit_bits_(unit_bits) {}

    void insert(Block& block) noexcept {
        const std::size_t number = number_of(Size::of(block));
        words_[number / 64] |= bit(number);
        word_bits_ |= bit(number / 64);
        trees_[number].insert(block);
        ++count_;
    }

    void remove(Block& block) noexcept {
        const std::size_t number = number_of(Size::of(block));
        trees_[number].remove(block);
        --count_;
        if (trees_[number].empty()) {
            words_[number / 64] &= ~bit(number);
            if (words_[number / 64] == 0) {
                word_bits_ &= ~bit(number / 64);
            }
        }
    }

    Block* at_least(std::uint64_t size, Address address) const noexcept {
        const std::size_t number = number_of(size);
        Block* found = trees_[number].at_least(size, address);
        return found != nullptr ? found : first_above(number);
    }

    Block* after(std::uint64_t size, Address address) const noexcept {
        return at_least(size, address + 1);
    }

    Block* before(std::uint64_t size, Address address) const noexcept {
        const std::size_t number = number_of(size);
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

    std::size_t number_of(std::uint64_t size) const noexcept {
        const std::uint64_t units = size >> unit_bits_;
        if (units < 128) {
            return units;
        }
        const auto power = static_cast<unsigned>(std::bit_width(units)) - 6;
        return 128 + (power - 2) * std::size_t{32} + ((units >> power) - 32);
    }

    Block* first_above(std::size_t number) const noexcept {
        std::size_t word = number / 64;
        std::uint64_t in_word = words_[word] & bits_above(number);
        if (in_word == 0) {
            const std::uint64_t words = word_bits_ & bits_above(word);
            if (words == 0) {
                return nullptr;
            }
            word = static_cast<std::size_t>(std::countr_zero(words));
            in_word = words_[word];
        }
        return trees_[word * 64 + static_cast<std::size_t>(std::countr_zero(in_word))].first();
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
    std::uint64_t word_bits_ = 0;  ///< which of words_ are not 0
    std::array<std::uint64_t, tree_count / 64> words_{};
    std::array<OrderedBlocks<Size>, tree_count> trees_{};
};

}  // namespace memlab::allocator
