// Reads an event log that is being written: each time what came since the time before.
//
// It follows the writer through the ring of regions. Where the writer was faster than the reader
// and a region was overwritten before it was read, a checkpoint is delivered for what is missing,
// as of a log that is read as a whole.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/reading/log_read_result.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// Thread-safety: none.
class LogTail {
  public:
    /// `descriptor`: of the log; it must stay open. `name`: for messages. `part`: sums or
    /// everything; of everything also what has been overwritten since it was read. The sink must
    /// outlive this.
    LogTail(int descriptor, std::string name, RecordSink& sink, LogPart part);
    ~LogTail();
    LogTail(const LogTail&) = delete;
    LogTail& operator=(const LogTail&) = delete;

    /// Delivers what is new. The result is that of all that was read so far: `cut_off` until there
    /// is an end; `gap` as read_log() tells it of the log as it is now, but of `everything` what
    /// this lacks itself. After `damaged`, `not_a_log` and `other_version` nothing more is
    /// delivered. Cost: O(what is new), a region's headers, and a ring's worth after a lap; what is
    /// written meanwhile may be left to the next call, so that it returns beside any writer. Throws
    /// what the sink throws, and std::bad_alloc; then it must not be used any more.
    const LogReadResult& read();

    /// How often it was lapped: the writer had overwritten what was not read yet.
    std::uint64_t laps() const;
    /// Bytes read from the file for records, for tests of the cost.
    std::uint64_t bytes_read() const;
    /// The errno of a read that failed; 0: none.
    int error() const;

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::trace
