// What was free inside the reserved memory at one moment of the past, worked out when somebody
// asks. Of all the moments of a run only the last new peak is asked about, and keeping every free
// range in order all along would cost more than the allocator that is watched.
//
// What lives carries the number of the moment after which it came; what was there at the last
// moment and has gone since is noted. Both together are what there was then. A block costs O(1), a
// reservation O(log reservations), and what is noted is never more than there was.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "report/whatif/model.hpp"

namespace memlab::whatif {

/// Thread-safety: none.
class PastSpace {
  public:
    /// Of a block, until it is given back.
    using Place = std::uint32_t;

    /// Memory is reserved; it must overlap none that is. Ranges that touch are one.
    void reserve(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes);
    /// Any part of what this owner reserved, of one call or of several.
    void release(std::uint32_t owner, std::uint64_t address, std::uint64_t bytes);
    void release_all(std::uint32_t owner);

    /// A block inside reserved memory is in use, and overlaps no other.
    Place take(std::uint64_t address, std::uint64_t size);
    void give_back(Place place);
    /// The address of a block in use.
    std::uint64_t address(Place place) const { return blocks_[place].address; }

    /// This is the moment that will be asked about, instead of the one before.
    void remember();

    /// What was free then; nothing when there was no such moment. O(n log n).
    FreeSpace then() const;

  private:
    struct Range {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
    };
    struct Piece {
        std::uint64_t size = 0;
        std::uint64_t after = 0;  ///< the moment
    };
    /// Its size is 0 where the place is free; then its address is the next free place.
    struct Block {
        std::uint64_t address = 0;
        std::uint64_t size = 0;
        std::uint64_t after = 0;
    };
    using Pieces = std::map<std::uint64_t, Piece>;  ///< by address

    static constexpr Place none = 0xffffffff;

    bool was_there(std::uint64_t after) const { return after < moment_; }
    static std::vector<Range> in_order(std::vector<Range> ranges);

    std::map<std::uint32_t, Pieces> reserved_;  ///< by owner
    std::vector<Block> blocks_;
    Place free_place_ = none;
    std::uint64_t moment_ = 0;  ///< how many there have been
    // What was there at the last moment, and has gone.
    std::vector<Range> released_;
    std::vector<Range> given_back_;
};

}  // namespace memlab::whatif
