// Where the parts of an event log are: its beginning, and behind it a ring of equal regions, which
// are used in turn. A region is overwritten only while a complete checkpoint of what was recorded
// before a later region is in the log.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trace/log_format.hpp"

namespace memlab::trace {

/// The place of a record: number of the region, from 0, and offset in it.
struct LogPosition {
    std::uint64_t region = 0;
    std::uint64_t offset = 0;
};

struct LogRing {
    std::uint32_t regions = 0;    ///< 0: there is no ring
    std::uint64_t beginning = 0;  ///< bytes before the first region
    std::uint64_t region_size = 0;

    /// Of a log of at most `limit` bytes, 0: any number. A quarter is the beginning. No ring where
    /// a log need not, or cannot, have one.
    static constexpr LogRing plan(std::uint64_t limit) {
        constexpr std::uint64_t page = 4096;
        const std::uint64_t beginning = limit / 4 / page * page;
        const std::uint64_t size = (limit - beginning) / format::ring_regions / page * page;
        if (size < format::min_region_size || size > format::max_region_size) {
            return {};
        }
        return {format::ring_regions, beginning, size};
    }
    /// Whether it can be that of a file.
    constexpr bool valid() const {
        return regions >= 2 && regions <= format::max_ring_regions &&
               region_size >= format::min_region_size && region_size <= format::max_region_size &&
               beginning >= format::ring_file_header_size && beginning <= format::max_region_size;
    }

    /// Writes a file's header, of one without a ring if there is none; returns its size.
    std::size_t put_file_header(std::uint8_t* header) const;

    /// The offset of a region in the file.
    constexpr std::uint64_t offset(std::uint64_t region) const {
        return beginning + region % regions * region_size;
    }
    /// Checkpoints above this size would leave too little space for events.
    constexpr std::uint64_t max_checkpoint() const { return region_size * regions / 4; }
};

/// Writes a region's header.
void put_region_header(std::uint8_t* header, std::uint64_t region);

}  // namespace memlab::trace
