// The moments of a run that are evenly spread over it, and which of them have a memory map.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace memlab::report {

/// `moments` times, the last of them the end of the run; fewer if the run has not as many
/// nanoseconds. At least one.
class MomentGrid {
  public:
    static constexpr std::uint64_t none = std::numeric_limits<std::uint64_t>::max();

    MomentGrid(std::uint64_t duration_ns, std::size_t moments, std::size_t maps)
        : duration_ns_(duration_ns),
          moments_(std::clamp<std::uint64_t>(moments, 1, std::max<std::uint64_t>(duration_ns, 1))),
          map_every_(std::max<std::uint64_t>(moments_ / std::max<std::size_t>(maps, 1), 1)) {}

    /// `none` after the last one.
    std::uint64_t next_ns() const {
        if (next_ > moments_) {
            return none;
        }
        // duration * next / moments, without overflow: both quotients are exact.
        return duration_ns_ / moments_ * next_ + duration_ns_ % moments_ * next_ / moments_;
    }
    /// Whether the next one has a map.
    bool has_map() const { return (moments_ - next_) % map_every_ == 0; }
    void advance() { ++next_; }

  private:
    std::uint64_t duration_ns_;
    std::uint64_t moments_;
    std::uint64_t map_every_;
    std::uint64_t next_ = 1;
};

}  // namespace memlab::report
