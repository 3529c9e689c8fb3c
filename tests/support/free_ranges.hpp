// Free ranges of an address space, and the lowest of them that a request fits into.
//
// Found by length: what a request costs grows with the number of different lengths, which for a
// space of n units is at most the square root of 2 n, and not with the number of ranges.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>

namespace memlab::support {

/// Thread-safety: none; one thread at a time.
class FreeRanges {
  public:
    /// Takes so many bytes at the lowest address that is a multiple of the alignment, a power of
    /// two. False: none is known that fits.
    bool take(std::uint64_t bytes, std::uint64_t alignment, std::uint64_t& address) {
        auto best = ranges_.end();
        for (auto of_length = lengths_.lower_bound(bytes); of_length != lengths_.end();
             ++of_length) {
            for (const std::uint64_t begin : of_length->second) {
                if (best != ranges_.end() && best->first < begin) {
                    break;
                }
                if (aligned(begin, alignment) - begin <= of_length->first - bytes) {
                    best = ranges_.find(begin);
                    break;
                }
            }
        }
        if (best == ranges_.end()) {
            return false;
        }
        const auto [begin, length] = *best;
        address = aligned(begin, alignment);
        remove(best);
        add(begin, address - begin);
        add(address + bytes, begin + length - address - bytes);
        return true;
    }

    /// Gives a range back, or adds one. Ranges that touch become one.
    void give(std::uint64_t begin, std::uint64_t bytes) {
        std::uint64_t end = begin + bytes;
        auto after = ranges_.lower_bound(begin);
        if (after != ranges_.end() && after->first == end) {
            end += after->second;
            remove(after);
        }
        auto before = ranges_.lower_bound(begin);
        if (before != ranges_.begin()) {
            --before;
            if (before->first + before->second == begin) {
                begin = before->first;
                remove(before);
            }
        }
        add(begin, end - begin);
    }

  private:
    using Ranges = std::map<std::uint64_t, std::uint64_t>;  // begin, length

    static std::uint64_t aligned(std::uint64_t address, std::uint64_t alignment) {
        return (address + alignment - 1) / alignment * alignment;
    }
    void add(std::uint64_t begin, std::uint64_t length) {
        if (length != 0) {
            ranges_.emplace(begin, length);
            lengths_[length].insert(begin);
        }
    }
    void remove(Ranges::iterator range) {
        const auto of_length = lengths_.find(range->second);
        of_length->second.erase(range->first);
        if (of_length->second.empty()) {
            lengths_.erase(of_length);
        }
        ranges_.erase(range);
    }

    Ranges ranges_;
    std::map<std::uint64_t, std::set<std::uint64_t>> lengths_;
};

}  // namespace memlab::support
