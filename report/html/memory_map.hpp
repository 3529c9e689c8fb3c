// Maps of the pools' segments: what lies where at a moment, in a bounded number of parts.
#pragma once

#include <cstddef>
#include <cstdint>

#include "report/html/history.hpp"

namespace memlab::trace {
class Aggregator;
}

namespace memlab::report {

/// Thread-safety: none.
class MapMaker {
  public:
    /// Adds the segments of a device's pools as they are now, in about `parts` parts.
    void add(const trace::Aggregator& state, std::uint32_t device, std::size_t parts,
             History::Map& map);

    /// If blocks were merged: of less than so many bytes.
    std::uint64_t merged_below() const { return merged_below_; }

  private:
    std::uint64_t merged_below_ = 0;
};

}  // namespace memlab::report
