// Finds what a log's ring of regions holds: the regions of the newest lap and what is left of the
// one before, and the checkpoints in them. Reads little more than the headers of blocks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "trace/block_header.hpp"
#include "trace/log_ring.hpp"
#include "trace/reading/log_input.hpp"

namespace memlab::trace {

/// A checkpoint, all blocks of which are there; their contents are not checked.
struct FoundCheckpoint {
    std::uint32_t number = 0;
    LogPosition position;
    std::vector<std::uint64_t> blocks;  ///< their offsets in the file
};

struct RingContents {
    std::uint64_t first = 0;  ///< number of the oldest region
    std::uint64_t count = 0;  ///< consecutive regions up to the newest; 0: none was begun
    /// Complete ones, oldest first; whose position is in one of the regions.
    std::vector<FoundCheckpoint> checkpoints;
};

/// The checkpoints of which blocks were found so far. May throw std::bad_alloc.
class CheckpointIndex {
  public:
    /// `payload`: of the block at `offset`, checkpoint_prefix_size bytes at least. Each block may
    /// be added more than once.
    void add(const std::uint8_t* payload, std::uint64_t offset);
    /// Those that are complete and whose position is in the regions of `contents`, oldest first.
    std::vector<FoundCheckpoint> complete(const RingContents& contents, const LogRing& ring) const;
    /// Forgets those whose position is before the region.
    void forget_before(std::uint64_t region);

  private:
    struct Partial {
        FoundCheckpoint found;
        std::uint32_t count = 0;
        bool broken = false;
    };
    std::map<std::uint32_t, Partial> partial_;  ///< by number
};

/// The regions that are there, without looking for checkpoints in them.
RingContents find_regions(const LogInput& input, const LogRing& ring);

/// Adds those of all regions to `index`, too, if there is one. May throw std::bad_alloc. Whatever
/// the input holds, the time is O(its size).
RingContents scan_ring(const LogInput& input, const LogRing& ring,
                       CheckpointIndex* index = nullptr);

/// The time of a checkpoint whose checksums are right and that this version can read; none: it is
/// of no use.
std::optional<std::uint64_t> checkpoint_time(const LogInput& input,
                                             const FoundCheckpoint& checkpoint);

/// The offset of the last blocks of the log's beginning: at most two, and what could not be sealed.
std::uint64_t last_blocks_of_beginning(const LogInput& input, const LogRing& ring);

/// The number of the region that is now at the place of region number `region`; none: false.
bool read_region_header(const LogInput& input, const LogRing& ring, std::uint64_t region,
                        std::uint64_t* number);

}  // namespace memlab::trace
