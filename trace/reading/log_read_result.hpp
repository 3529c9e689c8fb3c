// How the reading of an event log ended, and what it was asked to read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace memlab::trace {

enum class LogStatus : std::uint8_t {
    complete,       ///< ended by an End record
    cut_off,        ///< intact, but without End: the process was killed, or ended by _exit or exec
    damaged,        ///< a record or a checksum is wrong; everything before it was delivered
    not_a_log,      ///< wrong magic number, or unreadable: nothing was delivered
    other_version,  ///< a log of another version of the format: nothing was delivered
};

/// What to read of a log that kept its beginning and its newest part.
enum class LogPart : std::uint8_t {
    /// The beginning, a checkpoint for what is missing, and as much as there is after it.
    everything,
    /// The newest checkpoint and what is after it: enough for an Aggregator to have the figures of
    /// the whole recording.
    sums,
    beginning,  ///< what was recorded up to the first record that is missing
};

struct LogReadResult {
    /// What is missing between the beginning and the newest part: from the last record of the one
    /// to the first of the other.
    struct Gap {
        std::uint64_t from_ns = 0;
        std::uint64_t to_ns = 0;
    };

    LogStatus status = LogStatus::not_a_log;
    std::uint64_t records = 0;  ///< delivered
    std::uint64_t offset = 0;   ///< file offset where decoding ended
    bool has_ring = false;      ///< data behind `offset` may be older
    bool lacks_events = false;  ///< of a ring: the oldest of them were overwritten
    std::optional<Gap> gap;     ///< if records are missing; of sums, what would be
    std::string message;        ///< unless complete: what is wrong, and where (file and offset)

    /// Whether it is a log of this format version, complete or not.
    bool is_log() const {
        return status != LogStatus::not_a_log && status != LogStatus::other_version;
    }
};

}  // namespace memlab::trace
