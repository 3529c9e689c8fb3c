// The blocks of an event log, and the regions of its ring: where in the file the next record goes.
//
// A record is appended to the open block; where there is none, together with the header of a new
// one, in a single append of the file. A full block is sealed by a checksum, and the next one
// begins with a new codec's state. When the log's beginning or a region is full the records go on
// in the next region, while the latest checkpoint has what was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/checkpoint_blocks.hpp"
#include "trace/event_codec.hpp"
#include "trace/log_file.hpp"
#include "trace/log_format.hpp"
#include "trace/log_ring.hpp"
#include "trace/prefetch.hpp"

namespace memlab::trace {

/// What appends returns false when the log is full or its file failed, with why_full() set; the
/// caller then ends it. They may throw std::bad_alloc, of that text. Thread-safety: none.
class LogBlocks {
  public:
    /// Space always kept free for the records that close a log: LogStopped and End.
    static constexpr std::size_t end_reserve = 320;
    static constexpr std::size_t closing_reserve = 2 * end_reserve;

    /// LogFile::create(): 0, or errno.
    int create(const char* path, std::uint64_t limit, LogStorage storage, unsigned mode);
    /// Of the file; the first append.
    bool append_file_header();

    /// Whether records are appended: until seal_for_end() or end_records().
    bool takes_records() const { return takes_records_; }

    /// The codec's state, of the open block.
    CodecState& state() { return state_; }

    /// Whether the latest event of that type in state() is that of a commit_in_place() of the open
    /// block.
    bool has_latest(EventType type) const { return (types_in_block_ & type_bit(type)) != 0; }

    /// Whether there may be space in place; always where has_latest().
    bool takes_in_place() const { return takes_in_place_; }
    /// Space for up to `size` bytes of a record of the open block. The caller writes all but the
    /// first and calls commit_in_place(). Null: use append() instead.
    std::uint8_t* reserve_in_place(std::size_t size) const {
        return file_.reserve_in_place(size + closing_reserve);
    }
    /// Appends the `size` bytes at reserve_in_place(), of an event of that type.
    void commit_in_place(std::uint8_t first, std::size_t size, EventType type) {
        file_.commit_in_place(first, size);
        types_in_block_ = static_cast<std::uint16_t>(types_in_block_ | type_bit(type));
        end_full_block();
    }

    /// Appends a record, before which there must be space for a block's header. `events`: how many
    /// it holds; `spare`: how much space is left free behind it.
    bool append(std::uint8_t* record, std::size_t size, unsigned events,
                std::size_t spare = closing_reserve);
    /// Whether a record of that size fits into the region or the beginning.
    bool has_room(std::size_t size) const;
    /// Continues in the next region. A record that was encoded before must be encoded again:
    /// nothing before it is in its block.
    [[gnu::noinline]] bool next_region();

    /// Seals the open block, if any, and resets the codec's state; also after a record that was
    /// encoded but not appended, which the reader does not have as a base.
    void end_block();
    /// Only the records that close the log come now, in a block that stays open.
    void seal_for_end();
    /// The last record comes now.
    void end_records();

    /// Why the latest append failed: a sentence, no full stop.
    std::string why_full() const;

    /// Calls `wanted(context)`, within an append, whenever a checkpoint is wanted.
    void on_checkpoint_wanted(void (*wanted)(void*), void* context);
    bool wants_checkpoint() const { return wants_checkpoint_; }
    /// Where the records so far end; the next one is in another block.
    LogPosition begin_checkpoint();
    /// Whether the log has the space for it.
    bool takes(const CheckpointBlocks& checkpoint);
    /// Whether a block of that size can be appended without a risk that records find no space.
    bool has_room_for_block(std::size_t size) const { return file_.has_room_for(size); }
    bool append_block(const std::uint8_t* block, std::size_t size);
    /// All its blocks were appended.
    void complete(const CheckpointBlocks& checkpoint);

    LogFile& file() { return file_; }
    const LogFile& file() const { return file_; }
    /// Of the records in the blocks that ended.
    std::uint64_t latest_ns() const { return latest_ns_; }

    void close();
    void abandon();

    /// Prefetch what appending an event writes. From any thread.
    void prefetch(EventType type) const noexcept {
        prefetch_to_write<1>(&takes_in_place_);
        prefetch_to_write<sizeof(Event)>(&state_.last[static_cast<std::size_t>(type)]);
        file_.prefetch_append();
    }
    /// Of a ShortEvent.
    [[gnu::always_inline]] void prefetch_short() const noexcept {
        prefetch_to_write<1>(&takes_in_place_);
        file_.prefetch_append();
    }

  private:
    static constexpr std::uint16_t type_bit(EventType type) {
        static_assert(event_type_count == 16);
        return static_cast<std::uint16_t>(1U << static_cast<unsigned>(type));
    }
    std::uint64_t payload_start() const { return block_start_ + format::block_header_size; }
    void end_full_block() {
        if (file_.size() - payload_start() >= format::block_target) [[unlikely]] {
            end_block();
        }
    }
    void seal();

    LogFile file_;
    // What every event uses, in one cache line up to the codec's state of a single type.
    alignas(64) bool takes_in_place_ = false;
    bool takes_records_ = true;
    bool block_open_ = false;
    bool last_block_ = false;           ///< of the closing records
    std::uint16_t types_in_block_ = 0;  ///< of has_latest()
    std::uint64_t block_start_ = 0;
    CodecState state_;

    std::uint64_t latest_ns_ = 0;
    LogRing ring_;
    std::uint64_t limit_ = 0;
    std::uint64_t next_region_ = 0;      ///< number of regions begun
    std::uint64_t covered_regions_ = 0;  ///< the latest complete checkpoint is of what was before
    std::uint64_t checkpoint_size_ = 0;  ///< of that one
    std::uint64_t checkpoint_too_large_ = 0;
    bool ring_is_full_ = false;  ///< of records that no complete checkpoint covers
    bool wants_checkpoint_ = false;
    void (*checkpoint_wanted_)(void*) = nullptr;
    void* checkpoint_context_ = nullptr;
};

}  // namespace memlab::trace
