// A streaming reader of event logs, in bounded memory. Accepts truncated and damaged files.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "trace/reading/log_read_result.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// Delivers every intact record of `path` to `sink`, in order. On any input: throws only what the
/// sink throws, never reads out of bounds, and uses memory independent of the file's size.
/// References are checked: a sink never sees an undefined string, module, stack, context or device.
/// `bytes_read` (may be null) counts the bytes read so far, for progress displays on other threads.
LogReadResult read_log(const std::string& path, RecordSink& sink,
                       std::atomic<std::uint64_t>* bytes_read = nullptr,
                       LogPart part = LogPart::everything);

/// The same over bytes in memory (tests, fuzzers).
LogReadResult read_log(const void* data, std::uint64_t size, RecordSink& sink,
                       LogPart part = LogPart::everything);

}  // namespace memlab::trace
