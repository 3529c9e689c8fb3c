// Free space inside reserved memory at the latest snapshot, computed on request. Only the last new
// peak of a run is needed, and a sorted list of free ranges for every event would cost more than
// the allocator that is simulated.
//
// Blocks and reservations have the number of snapshots taken before them; those that were part of
// the snapshot and have been freed since are logged. Both together give the state at the snapshot.
// O(1) per block, O(log reservations) per reservation; the logs never exceed the state at the
// snapshot.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "report/whatif/model.hpp"

namespace memlab::report::whatif {

/// Thread-safety: none.
class FreeSpaceAtPeak {
  public:
    /// Handle of a block, valid until free().
    using Slot = std::uint32_t;

    /// Adds a reservation; it must not overlap another. Adjacent ones are merged.
    void reserve(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes);
    /// Releases any range of the owner's reservations.
    void release(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes);
    void release_all(std::uint32_t owner);

    /// Adds a block inside reserved memory; it must not overlap another.
    Slot allocate(std::uint64_t address, std::uint64_t size);
    void free(Slot slot);
    /// The address of a block in use.
    std::uint64_t address(Slot slot) const { return blocks_[slot].address; }

    /// Takes a snapshot; it replaces the previous one.
    void snapshot();

    /// The free space at the snapshot; 0 without one. O(n log n).
    FreeSpace free_space() const;

  private:
    struct Range {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    struct Piece {
        std::uint64_t size = 0;
        std::uint64_t born = 0;  ///< snapshots taken before
    };
    /// Size 0: a free slot; its address is then the next free slot.
    struct Block {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::uint64_t born = 0;
    };
    using Pieces = std::map<std::uint64_t, Piece>;  ///< by address

    static constexpr Slot none = 0xffffffff;

    bool in_snapshot(std::uint64_t born) const { return born < snapshot_count_; }
    static std::vector<Range> sorted_by_address(std::vector<Range> ranges);

    std::map<std::uint32_t, Pieces> reserved_;  ///< by owner
    std::vector<Block> blocks_;
    Slot free_slot_ = none;
    std::uint64_t snapshot_count_ = 0;  ///< number of snapshots taken
    // Removed since the snapshot.
    std::vector<Range> released_;
    std::vector<Range> freed_;
};

}  // namespace memlab::report::whatif
