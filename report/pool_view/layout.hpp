// Snapshots of the segments and blocks of memlab's pool at selected times, from the event log.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/report.hpp"
#include "report/reading/reader.hpp"

namespace memlab::trace {
class Aggregator;
}

namespace memlab::report {

struct BlockLayout {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t time_ns = 0;      ///< of the allocation
    std::size_t stack = 0;          ///< index into Report::stacks; 0: none
    std::size_t site = 0;           ///< index into Report::sites
    bool pending = false;           ///< freed, but GPU work may still use it
    std::uint32_t nn_modules = 0;   ///< NnModuleHolder::code(); 0: none
    std::string label = {};         ///< the program's name for it, the latest so far
    std::string label_detail = {};  ///< what it holds beside its name; empty: not known

    bool operator==(const BlockLayout&) const = default;
};

struct SegmentLayout {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::vector<BlockLayout> blocks;  ///< by address; they do not overlap

    std::uint64_t active_bytes() const;
    std::uint64_t free_bytes() const { return size - active_bytes(); }
    /// The largest free range.
    std::uint64_t largest_free() const;
    bool operator==(const SegmentLayout&) const = default;
};

/// A pool at one time.
struct PoolSnapshot {
    /// `stop`: the recording did, the program went on.
    enum class What : std::uint8_t { peak, oom, end, stop };
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
    const model::Device* device = nullptr;
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

/// Takes snapshots while a log is aggregated: of each device's pool when its allocated curve first
/// reached its peak, at the first `ooms` failures and at the end. There are none of what a log with
/// a ring has lost. Which peak is the highest is known only at the end: since the latest one it
/// notes what ends, and undoes that then. Memory: O(blocks at the peak). Thread-safety: none.
class PoolCollector {
  public:
    explicit PoolCollector(std::size_t ooms);
    ~PoolCollector();

    /// For read_report().
    LogSinkFactory sink_factory();
    /// Reads `log` for this alone. May throw std::bad_alloc.
    void read(const std::string& log);

    /// The log that was read last; empty: none.
    const std::string& log() const { return log_; }
    /// Of a device, whose peak was `peak` bytes, by time.
    std::vector<PoolSnapshot> moments(std::uint64_t device, std::uint64_t peak) const;
    const std::string& stretch() const { return stretch_; }

  private:
    class Sink;
    struct OfDevice;

    /// The sink that `log` is read into; forgets other logs. This and `figures` must outlive it.
    std::unique_ptr<Sink> follow(const std::string& log, trace::Aggregator& figures);

    const std::size_t ooms_;
    std::string log_;
    std::string stretch_;
    std::vector<OfDevice> devices_;
};

/// The snapshots of `devices`, which must be of the report of `log`. What `collected` has is used
/// if it is of this log, else the log is read. An empty `log` gives no snapshots.
PoolSnapshots snapshot_pools(const std::vector<const model::Device*>& devices,
                             const std::string& log, PoolCollector& collected);

}  // namespace memlab::report
