// A set of the pages of an expandable range: a bit each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace memlab::allocator {

/// Its size follows the highest page that it has to hold, not the range's. All functions but
/// cover() are noexcept.
class PageSet {
  public:
    static constexpr std::uint64_t none = ~std::uint64_t{0};

    /// Makes room for the pages below `pages`. Throws std::bad_alloc; then nothing has changed.
    void cover(std::uint64_t pages) {
        const std::size_t needed = (pages + 63) / 64;
        if (needed > words_.size()) {
            words_.resize(std::max(needed, 2 * words_.size()));
        }
    }

    /// `page` must be covered, here and in erase().
    void insert(std::uint64_t page) noexcept { words_[page / 64] |= std::uint64_t{1} << page % 64; }
    void erase(std::uint64_t page) noexcept {
        words_[page / 64] &= ~(std::uint64_t{1} << page % 64);
    }

    /// Of any page, covered or not.
    bool contains(std::uint64_t page) const noexcept {
        return page / 64 < words_.size() && (words_[page / 64] >> page % 64 & 1) != 0;
    }

    /// The lowest page of the set that is not below `page`, or none.
    std::uint64_t at_or_above(std::uint64_t page) const noexcept {
        for (std::size_t i = page / 64; i < words_.size(); ++i) {
            const std::uint64_t word =
                i == page / 64 ? words_[i] >> page % 64 << page % 64 : words_[i];
            if (word != 0) {
                return i * 64 + static_cast<unsigned>(std::countr_zero(word));
            }
        }
        return none;
    }
    /// The highest page of the set that is not above `page`, or none.
    std::uint64_t at_or_below(std::uint64_t page) const noexcept {
        for (std::size_t i = std::min<std::size_t>(page / 64 + 1, words_.size()); i-- != 0;) {
            const unsigned unused = i == page / 64 ? 63 - static_cast<unsigned>(page % 64) : 0;
            const std::uint64_t word = words_[i] << unused >> unused;
            if (word != 0) {
                return i * 64 + 63 - static_cast<unsigned>(std::countl_zero(word));
            }
        }
        return none;
    }

  private:
    std::vector<std::uint64_t> words_;
};

}  // namespace memlab::allocator
