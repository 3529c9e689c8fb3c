// The strongest test of pool and log there is: a pool made from nothing but the log must do again,
// event by event, what the recorded one did.
//
// The log's calls (alloc, free_requested, free_completed, alloc_retry, make_room, empty_cache,
// tick) are made to a Pool with the options of the log; its backend answers segment addresses from
// the log and nothing else. Everything that the pool then tells is compared with the log: the block
// of every allocation, each segment that it gets or gives back, in order. So the reserved curve is
// equal exactly when this says so. Only `sync` is not compared: it changes nothing.
//
// Any log that decodes can be replayed, and every prefix of one; contexts are replayed side by
// side, each with a pool of its own, as they were live.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "trace/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::whatif {

struct ReplayResult {
    std::uint64_t events = 0;       ///< pool events of the log that were compared
    std::uint64_t allocations = 0;  ///< those among them that are allocations
    std::uint64_t segments = 0;     ///< segments and mappings that the pool got
    std::uint64_t reserved_peak = 0;
    /// Where the two part, as one sentence; empty when they are equal.
    std::string divergence;
    /// Why the log could not be replayed at all: "what; what to do".
    std::string error;
    /// Of a damaged log: what and where.
    std::string warning;
};

/// What of a log's options concerns the pool of one device.
struct PoolInForce {
    allocator::PoolOptions options;
    std::uint64_t total_memory = 0;  ///< what the program could have of the device
};

/// Takes it from the options in force as text ("MEMLAB_..." and value): the caller knows them.
/// False with `problem` set when they cannot be used.
using ReadPoolOptions =
    std::function<bool(const std::vector<trace::OptionValue>& options,
                       const trace::DeviceInfo& device, PoolInForce* pool, std::string* problem)>;

/// Gives the records of a log to a sink, in order, and says how it ended.
using FeedRecords = std::function<trace::LogReadResult(trace::RecordSink& sink)>;

/// Replays what `feed` gives. Throws std::bad_alloc only.
ReplayResult replay_records(const FeedRecords& feed, const ReadPoolOptions& read_options);

/// Reads and replays the log at `path`. Throws std::bad_alloc only.
ReplayResult replay_log(const std::string& path, const ReadPoolOptions& read_options);

}  // namespace memlab::whatif
