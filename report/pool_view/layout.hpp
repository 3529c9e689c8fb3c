// Snapshots of the segments and blocks of memlab's pool at selected times, from the event log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "trace/json/report.hpp"

namespace memlab::trace {
class Aggregator;
}

namespace memlab::report {

struct BlockLayout {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t time_ns = 0;  ///< of the allocation
    std::size_t stack = 0;      ///< index into Report::stacks; 0: none
    std::size_t site = 0;       ///< index into Report::sites
    bool pending = false;       ///< freed, but GPU work may still use it
};

struct SegmentLayout {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::vector<BlockLayout> blocks;  ///< by address; they do not overlap

    std::uint64_t active_bytes() const;
    std::uint64_t free_bytes() const { return size - active_bytes(); }
    /// The largest free range.
    std::uint64_t largest_free() const;
};

/// A pool at one time.
struct PoolSnapshot {
    enum class What : std::uint8_t { peak, oom, end };
    What what = What::peak;
    std::uint64_t time_ns = 0;
    std::uint64_t requested = 0;          ///< at an OOM: the failed request
    std::vector<SegmentLayout> segments;  ///< by address

    std::uint64_t reserved_bytes() const;
    std::uint64_t active_bytes() const;
    std::uint64_t pending_bytes() const;
    std::uint64_t largest_free() const;
};

/// The snapshots of a device's pool, by time.
struct DevicePool {
    const Device* device = nullptr;
    std::vector<PoolSnapshot> moments;
};

/// The pools of a recording.
struct PoolSnapshots {
    std::vector<DevicePool> devices;
    std::string stretch;  ///< a sentence on what of the recording was examined; empty: all
};

/// The current segments of a device's pools, by address, with their blocks. Blocks outside of all
/// segments (incomplete recordings) are omitted.
std::vector<SegmentLayout> snapshot_segments(const trace::Aggregator& figures,
                                             std::uint32_t device);

/// Snapshots of the pools of `devices`: when the allocated curve first reached its peak, at the
/// first `ooms` failures and at the end. `devices` must be of the report of `log`, which is read
/// once; an empty `log` gives no snapshots, and there are none of what a log with a ring has lost.
PoolSnapshots snapshot_pools(const std::vector<const Device*>& devices, const std::string& log,
                             std::size_t ooms);

}  // namespace memlab::report
