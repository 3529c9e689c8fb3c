// Finds what a log's ring of regions holds: the regions of the newest lap and what is left of the
// one before, and the checkpoints in them. Reads little more than the headers of blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "trace/block_header.hpp"
#include "trace/log_input.hpp"
#include "trace/log_ring.hpp"

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

/// May throw std::bad_alloc. Whatever the input holds, the time is O(its size).
RingContents scan_ring(const LogInput& input, const LogRing& ring);

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
