// The writer of event logs. Guarantee: what was appended before the process died, however it died,
// can be read back; every prefix of the file decodes. See docs/event-log.md for the format.
//
// LogFile stores the bytes. A record becomes visible by one final store, so a kill between two
// instructions loses at most the record being written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "trace/log_file.hpp"
#include "trace/record_sink.hpp"

namespace memlab::trace {

/// Thread-safety: none; the recorder's lock serializes. After fork the child must call
/// abandon_after_fork() and never anything else: the mapping is not inherited (MADV_DONTFORK).
class LogWriter final : public RecordSink {
  public:
    struct Result {
        std::unique_ptr<LogWriter> writer;  ///< null on failure
        std::string error;                  ///< what failed, with the path and the system's reason
        int error_number = 0;               ///< errno of the failure: EEXIST when the name is taken
    };

    /// Creates `path` exclusively (O_EXCL: never another process's file), with the permissions
    /// `mode` minus the umask. `limit` is the maximum size in bytes (0: none). At the limit the log
    /// stops: it keeps its records, appends LogStopped, and counts what it drops. Space for
    /// LogStopped and End is reserved from the start.
    static Result create(const std::string& path, std::uint64_t limit,
                         LogStorage storage = LogStorage::automatic, unsigned mode = 0666);

    /// Closes, as close() does.
    ~LogWriter() override;

    /// Undefined references are written as 0 ("none"); definitions out of order and events of an
    /// undefined device are dropped. So no input makes an unreadable log. Records after End are
    /// ignored.

    void on(const Event& record) override;
    void on_freed(const Event& free_requested) override;
    /// LogStopped is ignored: the writer makes its own.
#define MEMLAB_ON(Record, name, tag) void on(const Record& record) override;
    MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

    /// Prefetches what the next event of that type needs. From any thread, at any time but during
    /// destruction.
    void prefetch(EventType type) const noexcept;

    /// Truncates the unused preallocation and closes the file. Nothing may be appended afterwards.
    void close();

    /// In a forked child: closes the descriptor, touches nothing else, writes nothing.
    void abandon_after_fork();

    const std::string& path() const;
    std::uint64_t bytes_written() const;
    /// Events that are missing from the log, though the aggregator has them.
    std::uint64_t events_dropped() const;

    /// Empty, or one sentence (no path, no full stop) saying why the log stopped. Set once.
    const std::string& stopped_because() const;
    /// After close(): empty, or such a sentence saying why the latest appends may be missing.
    std::string incomplete_because() const;

  private:
    class Impl;
    explicit LogWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::trace
