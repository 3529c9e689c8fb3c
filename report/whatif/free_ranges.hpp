// A best-fit free list of coalesced address ranges. O(log ranges) per call.
#pragma once

#include <cstdint>
#include <iterator>
#include <map>
#include <set>
#include <utility>

namespace memlab::report::whatif {

class FreeRanges {
  public:
    struct Range {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };

    /// Adds a range and merges it with adjacent ones; returns the merged range. It must not overlap
    /// a free range.
    Range add(std::uint64_t address, std::uint64_t size) {
        const auto next = by_address_.lower_bound(address);
        Range merged{address, size};
        if (next != by_address_.begin()) {
            const auto before = std::prev(next);
            if (before->first + before->second == address) {
                merged = {before->first, before->second + size};
                by_size_.erase({before->second, before->first});
                by_address_.erase(before);
            }
        }
        if (next != by_address_.end() && next->first == address + size) {
            merged.size += next->second;
            by_size_.erase({next->second, next->first});
            by_address_.erase(next);
        }
        by_address_.emplace(merged.address, merged.size);
        by_size_.emplace(merged.size, merged.address);
        total_ += size;
        return merged;
    }

    /// Takes `size` bytes from the start of the smallest sufficient range (of equal ones, the
    /// lowest); false when there is none.
    bool take_best(std::uint64_t size, std::uint64_t* address) {
        const auto found = by_size_.lower_bound({size, 0});
        if (found == by_size_.end()) {
            return false;
        }
        const Range range{found->second, found->first};
        remove(range);
        if (range.size > size) {
            put({range.address + size, range.size - size});
        }
        *address = range.address;
        return true;
    }

    /// Takes [address, address + size); false when it is not inside one free range.
    bool take_at(std::uint64_t address, std::uint64_t size) {
        auto found = by_address_.upper_bound(address);
        if (found == by_address_.begin()) {
            return false;
        }
        --found;
        const Range range{found->first, found->second};
        if (address - range.address > range.size || range.size - (address - range.address) < size) {
            return false;
        }
        remove(range);
        if (address > range.address) {
            put({range.address, address - range.address});
        }
        const std::uint64_t end = range.address + range.size;
        if (end > address + size) {
            put({address + size, end - address - size});
        }
        return true;
    }

    /// Removes a whole free range.
    void remove(Range range) {
        by_address_.erase(range.address);
        by_size_.erase({range.size, range.address});
        total_ -= range.size;
    }

    /// The free range that ends at `end`; size 0 when there is none.
    Range ending_at(std::uint64_t end) const {
        const auto next = by_address_.lower_bound(end);
        if (next == by_address_.begin()) {
            return {};
        }
        const auto before = std::prev(next);
        return before->first + before->second == end ? Range{before->first, before->second}
                                                     : Range{};
    }

    std::uint64_t largest() const { return by_size_.empty() ? 0 : by_size_.rbegin()->first; }
    std::uint64_t total() const { return total_; }
    const std::map<std::uint64_t, std::uint64_t>& ranges() const { return by_address_; }

  private:
    void put(Range range) {
        by_address_.emplace(range.address, range.size);
        by_size_.emplace(range.size, range.address);
        total_ += range.size;
    }

    std::map<std::uint64_t, std::uint64_t> by_address_;
    std::set<std::pair<std::uint64_t, std::uint64_t>> by_size_;  ///< (size, address)
    std::uint64_t total_ = 0;
};

}  // namespace memlab::report::whatif
