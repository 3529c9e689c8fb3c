// Replays the pool calls of a log on a new pool and compares the result event by event: the
// strongest test of pool and log.
//
// The log's calls (alloc, free_requested, free_completed, alloc_retry, reclaim, empty_cache,
// tick) are made to a Pool with the options of the log; its backend returns the segment addresses
// of the log. All observer events of the pool are compared with the log, in order: the block of
// every allocation, each segment that is allocated or released. So equality also proves the
// reserved curve. Only `sync` is not compared: it has no effect.
//
// Any log that decodes can be replayed, and every prefix of one. Each context has its own pool, as
// in the live process.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "allocator/pool_options.hpp"
#include "trace/reading/log_reader.hpp"
#include "trace/record_sink.hpp"

namespace memlab::report::whatif {

struct ReplayResult {
    std::uint64_t events = 0;       ///< pool events of the log that were compared
    std::uint64_t allocations = 0;  ///< those among them that are allocations
    std::uint64_t segments = 0;     ///< segments and mappings that the pool got
    std::uint64_t reserved_peak = 0;
    /// The first difference, as one sentence; empty when they are equal.
    std::string divergence;
    /// Why the log could not be replayed at all: "what; what to do".
    std::string error;
    /// Damage of the log: what and where.
    std::string warning;
};

/// The options of a log for the pool of one device.
struct PoolInForce {
    allocator::PoolOptions options;
    std::uint64_t total_memory = 0;  ///< device memory available to the program
};

/// Parses recorded options ("MEMLAB_..." and value); supplied by the caller, who has the option
/// table. `first`: for the first of the process's contexts on the device. False with `problem` set
/// when they cannot be used.
using ReadPoolOptions = std::function<bool(const std::vector<trace::OptionValue>& options,
                                           const trace::DeviceInfo& device, bool first,
                                           PoolInForce* pool, std::string* problem)>;

/// Feeds the records of a log to a sink, in order, and returns the reader's result.
using FeedRecords = std::function<trace::LogReadResult(trace::RecordSink& sink)>;

/// Replays the records of `feed`. Throws std::bad_alloc only.
ReplayResult replay_records(const FeedRecords& feed, const ReadPoolOptions& read_options);

/// Reads and replays the log at `path`. Throws std::bad_alloc only.
ReplayResult replay_log(const std::string& path, const ReadPoolOptions& read_options);

}  // namespace memlab::report::whatif
