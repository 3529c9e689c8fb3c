// A 128-bit hash that identifies a call stack. Comparing the stacks themselves would cost half a
// dozen cache misses; among the 100,000 stacks of a large program the probability of a collision is
// below 10^-9.
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/word_mix.hpp"

namespace memlab::profiler {

struct StackHash {
    std::uint64_t index;  ///< selects the slot of a table
    std::uint64_t check;
    bool operator==(const StackHash&) const = default;
};

/// Hashes a sequence of words. Two words per multiplication, in four independent lanes: a single
/// chain of multiplications over sixty words would cost more than the rest of a lookup.
class StackHasher {
  public:
    StackHasher(std::uint64_t first, std::uint64_t second)
        : lanes_{mix(first, factor), mix(second, factor), lane_seeds[0], lane_seeds[1]} {}

    /// Adds `count` pairs of words; the i-th is `words(i)` and `others(i)`.
    template <class Words, class Others>
    [[gnu::always_inline]] void add(std::size_t count, const Words& words, const Others& others) {
        std::size_t i = 0;
        for (; i + 4 <= count; i += 4) {
            for (std::size_t lane = 0; lane < 4; ++lane) {
                add_to(lanes_[lane], words(i + lane), others(i + lane));
            }
        }
        for (std::size_t lane = 0; i < count; ++i, ++lane) {
            add_to(lanes_[lane], words(i), others(i));
        }
    }

    StackHash result() const {
        return {
            mix(mix(lanes_[0], lanes_[1] ^ factor), mix(lanes_[2], lanes_[3] ^ factor) ^ factor),
            mix(lanes_[0] ^ factor, lanes_[2]) ^ mix(lanes_[1], lanes_[3] ^ factor)};
    }

  private:
    static constexpr std::uint64_t factor = mix_factor;

    static void add_to(std::uint64_t& lane, std::uint64_t word, std::uint64_t other) {
        lane = mix(word ^ lane, other ^ factor);
    }

    std::uint64_t lanes_[4];
};

}  // namespace memlab::profiler
