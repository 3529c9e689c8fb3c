// Reads an event log as a stream, in bounded memory, whatever happened to the file.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "trace/record_sink.hpp"

namespace memlab::trace {

enum class LogStatus : std::uint8_t {
    complete,       ///< ended by an End record
    cut_off,        ///< decodes to its end, but the process never finished it (killed, _exit, exec)
    damaged,        ///< a record or a checksum is wrong; everything before it was delivered
    not_a_log,      ///< wrong magic number, or unreadable: nothing was delivered
    other_version,  ///< a log of another version of the format: nothing was delivered
};

struct LogReadResult {
    LogStatus status = LogStatus::not_a_log;
    std::uint64_t records = 0;  ///< delivered
    std::uint64_t offset = 0;   ///< file offset where decoding ended
    std::string message;        ///< unless complete: what, where (file and offset)

    /// Of the version that is read here, whatever became of it.
    bool is_log() const {
        return status != LogStatus::not_a_log && status != LogStatus::other_version;
    }
};

/// Delivers every intact record of `path` to `sink`, in order. Never throws, never reads out of
/// bounds, and uses memory independent of the file's size, on any input at all. Definitions are
/// checked: a sink sees no reference to an undefined string, module, stack, context or device.
/// `bytes_read`, where it is given, counts the bytes that have been read so far, for whoever looks
/// at it meanwhile.
LogReadResult read_log(const std::string& path, RecordSink& sink,
                       std::atomic<std::uint64_t>* bytes_read = nullptr);

/// The same over bytes in memory (tests, fuzzers).
LogReadResult read_log(const void* data, std::uint64_t size, RecordSink& sink);

}  // namespace memlab::trace
