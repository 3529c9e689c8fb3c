// How memlab's pool lay in memory at chosen moments: its segments, and the blocks in them, from the
// event log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "report/model.hpp"

namespace memlab::trace {
class Aggregator;
}

namespace memlab::report {

struct LaidBlock {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t time_ns = 0;  ///< allocated then
    std::size_t stack = 0;      ///< index into Report::stacks; 0: none
    std::size_t site = 0;       ///< index into Report::sites
    bool pending = false;       ///< given back, but work may still use it
};

struct LaidSegment {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::vector<LaidBlock> blocks;  ///< by address; they do not overlap

    std::uint64_t active_bytes() const;
    std::uint64_t free_bytes() const { return size - active_bytes(); }
    /// The largest stretch without a block.
    std::uint64_t largest_free() const;
};

/// A pool at one moment.
struct PoolMoment {
    enum class What : std::uint8_t { peak, oom, end };
    What what = What::peak;
    std::uint64_t time_ns = 0;
    std::uint64_t requested = 0;        ///< at an OOM: what did not fit
    std::vector<LaidSegment> segments;  ///< by address

    std::uint64_t reserved_bytes() const;
    std::uint64_t active_bytes() const;
    std::uint64_t pending_bytes() const;
    std::uint64_t largest_free() const;
};

/// One device's pool at its moments, in order of time.
struct PoolOfDevice {
    const Device* device = nullptr;
    std::vector<PoolMoment> moments;
};

/// The segments of a device's pools as they are now, by address, with their blocks. A recording may
/// have holes: a block outside of all segments is left out.
std::vector<LaidSegment> lay_out(const trace::Aggregator& figures, std::uint32_t device);

/// The pools of `devices` when the device's allocated curve was first at its peak, at its first
/// failures (at most `ooms`) and at the end. The devices are of the report that was made of `log`,
/// which is read once; empty: there is none, and no moments.
std::vector<PoolOfDevice> pools_of(const std::vector<const Device*>& devices,
                                   const std::string& log, std::size_t ooms);

}  // namespace memlab::report
