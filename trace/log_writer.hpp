// The writer of event logs. Guarantee: what was appended before the process died, however it died,
// can be read back; every prefix of the file decodes. See docs/event-log.md for the format.
//
// LogBlocks has the records' places, LogFile stores the bytes. A record becomes visible by one
// final store, so a kill between two instructions loses at most the record being written.
//
// At its limit the log keeps its beginning and its newest part, a ring of regions, if it gets
// checkpoints: while each region is in use the caller passes what an aggregator knows by then.
// Without one a region is not overwritten; the log then stops.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trace/checkpoint_blocks.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_blocks.hpp"
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
    /// `mode` minus the umask. `limit` is the maximum size in bytes (0: none). At the limit,
    /// without checkpoints, the log stops: it keeps its records, appends LogStopped, and counts
    /// what it drops. Space for LogStopped and End is reserved from the start.
    static Result create(const std::string& path, std::uint64_t limit,
                         LogStorage storage = LogStorage::automatic, unsigned mode = 0666);

    /// Closes, as close() does.
    ~LogWriter() override;

    /// Records after End are ignored.

    void on(const Event& record) override;
    void on_freed(const Event& free_requested) override;
    /// Appends an alloc, or with `freed` the two events of on_freed(), that in all else equals the
    /// last event of its type that was passed to those functions, in a few dozen instructions.
    /// False, without a change: pass the whole event to one of them.
    bool on_short(const ShortEvent& event, bool freed) noexcept;
    /// LogStopped and what is part of a checkpoint are ignored: the writer makes its own.
#define MEMLAB_ON(Record, name, tag) void on(const Record& record) override;
    MEMLAB_RECORD_KINDS(MEMLAB_ON)
#undef MEMLAB_ON

    /// Prefetches what the next event of that type needs. From any thread, at any time but during
    /// destruction.
    [[gnu::always_inline]] void prefetch(EventType type) const noexcept {
        blocks_.prefetch(type);
    }
    /// Of on_short().
    [[gnu::always_inline]] void prefetch_short() const noexcept {
        blocks_.prefetch_short();
    }

    /// Stops as the log did of which this one is a copy. Only End is appended afterwards.
    void stop_as(const LogStopped& original);

    /// Calls `wanted(context)`, within an append, whenever a checkpoint is wanted.
    void on_checkpoint_wanted(void (*wanted)(void*), void* context) {
        blocks_.on_checkpoint_wanted(wanted, context);
    }
    bool wants_checkpoint() const {
        return blocks_.wants_checkpoint();
    }
    /// Begins a checkpoint of all records so far; pass it what an aggregator of them knows. Only
    /// when one is wanted. May throw std::bad_alloc; then it is no longer wanted.
    std::unique_ptr<CheckpointBlocks> begin_checkpoint();
    enum class CheckpointStep : std::uint8_t {
        more,      ///< call again for the next block
        later,     ///< the file system has to catch up: call again in some milliseconds
        complete,  ///< all blocks are in the log, or it wants them no more
    };
    /// Appends block number `next` of a finished checkpoint; other records may be appended between
    /// its blocks. The checkpoint counts when it is complete.
    CheckpointStep append_checkpoint(const CheckpointBlocks& checkpoint, std::size_t next);

    /// Truncates the unused preallocation and closes the file. Nothing may be appended afterwards.
    void close() {
        blocks_.close();
    }

    /// In a forked child: closes the descriptor, touches nothing else, writes nothing.
    void abandon_after_fork() {
        blocks_.abandon();
    }

    const std::string& path() const {
        return path_;
    }
    /// The end of the data in the file: once the log is a ring not the number of bytes written.
    std::uint64_t bytes_written() const {
        return blocks_.file().size();
    }
    /// Events that are missing from the log, though the aggregator has them.
    std::uint64_t events_dropped() const {
        return dropped_;
    }

    /// Empty, or one sentence (no path, no full stop) saying why the log stopped. Set once.
    const std::string& stopped_because() const {
        return stopped_because_;
    }
    /// After close(): empty, or such a sentence saying why the latest appends may be missing.
    std::string incomplete_because() const {
        return blocks_.file().why_incomplete();
    }

  private:
    explicit LogWriter(std::string path);
    int start(std::uint64_t limit, LogStorage storage, unsigned mode);

    template <bool freed>
    bool append_short(const ShortEvent& event) noexcept;
    void append_event(std::uint8_t tag, const Event& event) noexcept;
    bool append_event_copied(std::uint8_t tag, const Event& event) noexcept;
    template <typename Record>
    void append(const Record& record) noexcept;
    void append(const LogStopped& /*record*/) {}
    void append(const Checkpoint& /*record*/) {}
    void append(const AggregateState& /*record*/) {}
    void append(const End& record) noexcept;
    bool append_end(const End& record);

    template <typename Record>
    void encode(const Record& record);
    std::uint8_t* record_begin() {
        return bytes_.data() + format::block_header_size;
    }
    std::size_t record_size() const {
        return bytes_.size() - format::block_header_size;
    }

    bool stop();
    void append_stop(std::uint64_t time_ns);
    void count_dropped(unsigned events);

    LogBlocks blocks_;
    std::string stopped_because_;
    std::uint64_t dropped_ = 0;
    std::uint64_t lost_ = 0;      ///< of these, what the file lost
    std::uint64_t count_at_ = 0;  ///< file offset of LogStopped's count
    bool ended_ = false;
    std::uint32_t checkpoint_number_ = 0;
    std::vector<std::uint8_t> bytes_;
    const std::string path_;
};

}  // namespace memlab::trace
