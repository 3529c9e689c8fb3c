// The segments and blocks of a snapshot of PyTorch's memory. Allocations that no pool served get
// segments of their own at addresses that no GPU has.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

namespace memlab::report::exports {

/// Synthetic addresses: above those of GPUs, and exact as JavaScript numbers (below 2^53).
inline constexpr std::uint64_t first_synthetic_address = std::uint64_t{1} << 52;
inline constexpr std::uint64_t synthetic_address_end = std::uint64_t{1} << 53;

struct SnapshotBlock {
    std::uint64_t size = 0;
    std::uint64_t requested = 0;
    std::uint32_t stack = 0;
    bool pending = false;
};

struct SnapshotSegment {
    std::uint64_t size = 0;
    std::uint64_t stream = 0;
    std::uint32_t stack = 0;
    bool mapped = false;
    bool synthetic = false;  ///< of one allocation that the pool did not serve
};

/// The segments of a device and the blocks in them; neither overlap.
class SnapshotLayout {
  public:
    using Segments = std::map<std::uint64_t, SnapshotSegment>;
    using Blocks = std::map<std::uint64_t, SnapshotBlock>;

    Segments segments;
    Blocks blocks;

    bool is_free(std::uint64_t address, std::uint64_t size) const {
        if (size == 0 || size > synthetic_address_end - std::min(address, synthetic_address_end)) {
            return false;
        }
        const auto behind = segments.lower_bound(address + size);
        return behind == segments.begin() ||
               std::prev(behind)->first + std::prev(behind)->second.size <= address;
    }

    /// The segment that holds the whole range; end() for none.
    Segments::iterator around(std::uint64_t address, std::uint64_t size) {
        auto at = segments.upper_bound(address);
        if (at == segments.begin()) {
            return segments.end();
        }
        --at;
        const std::uint64_t inside = address - at->first;
        return inside <= at->second.size && size <= at->second.size - inside ? at : segments.end();
    }

    bool overlaps_block(std::uint64_t address, std::uint64_t size) const {
        const auto behind = blocks.lower_bound(address + size);
        return behind != blocks.begin() &&
               std::prev(behind)->first + std::prev(behind)->second.size > address;
    }

    /// The lowest free synthetic range of `size` bytes.
    std::optional<std::uint64_t> find_synthetic_address(std::uint64_t size) const {
        std::uint64_t address = first_synthetic_address;
        auto at = segments.lower_bound(first_synthetic_address);
        if (at != segments.begin()) {  // may reach into the synthetic range
            address = std::max(address, std::prev(at)->first + std::prev(at)->second.size);
        }
        for (; at != segments.end(); ++at) {
            if (at->first - address >= size) {
                return address;
            }
            address = at->first + at->second.size;
        }
        return synthetic_address_end - address >= size ? std::optional(address) : std::nullopt;
    }

    /// Merges adjacent mapped ranges into one expandable segment.
    void map(std::uint64_t address, SnapshotSegment segment) {
        if (auto next = segments.find(address + segment.size);
            next != segments.end() && next->second.mapped) {
            segment.size += next->second.size;
            segments.erase(next);
        }
        if (auto previous = segments.lower_bound(address); previous != segments.begin()) {
            --previous;
            if (previous->second.mapped && previous->first + previous->second.size == address) {
                previous->second.size += segment.size;
                return;
            }
        }
        segments.emplace(address, segment);
    }

    /// The range must be inside one mapped segment.
    void unmap(Segments::iterator at, std::uint64_t address, std::uint64_t size) {
        const auto [begin, segment] = *at;
        segments.erase(at);
        if (begin < address) {
            SnapshotSegment front = segment;
            front.size = address - begin;
            segments.emplace(begin, front);
        }
        if (address + size < begin + segment.size) {
            SnapshotSegment rear = segment;
            rear.size = begin + segment.size - (address + size);
            segments.emplace(address + size, rear);
        }
    }
};

}  // namespace memlab::report::exports
