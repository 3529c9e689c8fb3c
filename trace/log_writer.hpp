// Writes the event log. Guarantee: whatever was appended before the process died, however it died,
// can be read back; every prefix of the file decodes. See docs/event-log.md for the format.
//
// How the bytes get there is LogFile's business. A record becomes visible by one final store, so a
// kill between two instructions loses at most the record being written.
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

    /// Creates `path` exclusively (O_EXCL: never another process's file). `limit` bytes at most
    /// (0: no limit); past it the log stops, says so at once, keeps what it has and counts what it
    /// drops. Room for that and for End is set aside from the start. `mode`, less the umask, says
    /// who may read it: by default the user's choice, as with any compiler's output.
    static Result create(const std::string& path, std::uint64_t limit,
                         LogStorage storage = LogStorage::automatic, unsigned mode = 0666);

    /// Closes, as close() does.
    ~LogWriter() override;

    /// References to what was never defined are written as 0 ("none"); definitions out of order
    /// and events of an undefined device are dropped. No record makes a log that cannot be read.
    /// What comes after End is ignored.

    void on(const Event& record) override;
    void on_freed(const Event& free_requested) override;
    /// LogStopped is ignored: the writer says itself when it stops.
#define MEMLAB_ON(Record, name, tag) void on(const Record& record) override;
    MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

    /// An event of that type will come soon: what it takes to write it is brought into the
    /// processor's caches meanwhile. From any thread, at any time but during destruction.
    void prefetch(EventType type) const noexcept;

    /// Trims the preallocated rest and closes the file. Nothing may be appended afterwards.
    void close();

    /// In a forked child: closes the descriptor, touches nothing else, writes nothing.
    void abandon_after_fork();

    const std::string& path() const;
    std::uint64_t bytes_written() const;
    /// Events that are missing from the log: what the aggregate has of them and the log has not.
    std::uint64_t events_dropped() const;

    /// Empty while all is well; else one sentence (no path, no full stop) saying why the log
    /// stopped. Set once.
    const std::string& stopped_because() const;
    /// After close(): empty, or such a sentence of what was appended last and may be missing.
    std::string incomplete_because() const;

  private:
    class Impl;
    explicit LogWriter(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace memlab::trace
